package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/handshake"
)

// failures are the TLS handshakes that fail, of all listeners.
type failures struct{ *handshake.Failures }

// failed returns what notes those of one listener.
func (f failures) failed(listener string) func(net.Addr, error) {
	return func(client net.Addr, err error) { f.Failed(listener, client, err) }
}

// A certWatch says when certificates in use end. Those of the gRPC listener are a part of readiness: callers that
// cannot verify them fail, and Envoy then lets requests pass. Of the others the log, /readyz and the metrics warn.
type certWatch struct {
	log  *slog.Logger
	grpc []string // the names of the files of the gRPC listener

	mu    sync.Mutex
	files []*certFiles // of all listeners; that of gRPC may come later than run

	said map[certs.Validity]warning
}

// A warning is the level of a line in the log, and when it was written.
type warning struct {
	level slog.Level
	at    time.Time
}

// certsEvery is how often certificates are looked at, and certsAgain how often the log warns of the same ones.
const (
	certsEvery = 2 * time.Second
	certsAgain = 24 * time.Hour
)

// follow has the files of one more listener looked at.
func (w *certWatch) follow(f *certFiles) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, f)
}

// followed returns the files of all listeners.
func (w *certWatch) followed() []*certFiles {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.files)
}

// run looks at certificates until ctx ends.
func (w *certWatch) run(ctx context.Context) {
	background.Every(ctx, certsEvery, func(context.Context) {
		for _, f := range w.followed() { // also if nobody connects, as while the service is not ready
			f.current()
		}
		w.look(time.Now())
	})
}

// look logs what is new.
func (w *certWatch) look(now time.Time) {
	said := map[certs.Validity]warning{}
	for _, v := range certs.InUse() {
		level, problem := slog.LevelError, v.Problem(now)
		if problem == "" {
			if !v.EndsSoon(now) {
				continue
			}
			level, problem = slog.LevelWarn, "expires in "+v.Ends.Sub(now).Round(time.Minute).String()
		}
		last := w.said[v]
		if last.at.IsZero() || last.level != level || now.Sub(last.at) >= certsAgain {
			w.log.Log(context.Background(), level, "a certificate in use must be renewed", "use", string(v.Use),
				"file", v.File, "problem", problem, "expires", v.Ends.UTC())
			last = warning{level, now}
		}
		said[v] = last
	}
	w.said = said
}

// part reports whether certificates can be used, and whether renewed ones are.
func (w *certWatch) part() web.Part {
	part := web.Part{Name: "certificates", Serving: true}
	ends := time.Duration(0)
	for _, v := range certs.InUse() {
		problem := v.Problem(time.Now())
		needed := v.Use == certs.OfListener && slices.Contains(w.grpc, v.File)
		if left := time.Until(v.Ends); problem == "" && (ends == 0 || left < ends) {
			ends = left
			part.Detail = fmt.Sprintf("the first expires in %s", spell.Count(int(left.Hours()/24), "day"))
		}
		if problem != "" && (part.Problem == "" || needed && part.Serving) {
			part.Problem, part.Serving = v.File+" "+problem, !needed
		}
	}
	for _, f := range w.followed() {
		if part.Problem == "" {
			part.Problem = f.refusal()
		}
	}
	return part
}
