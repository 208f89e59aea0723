package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/overlay"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/descriptors/watch"
	"github.com/headgate-rls/headgate/descriptors/xds"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// xdsRules are rules that a control plane sends.
type xdsRules struct {
	conf    *config.XDS
	log     *slog.Logger
	metrics *serverMetrics
	client  *xds.Client
	overlay *overlay.Overlay // of the start

	rejected atomic.Bool // not all of the last update is in force
	unlaid   atomic.Bool // the files of the overlay have errors
}

// openXDS prepares rules by xDS. It connects to nobody yet.
func openXDS(conf *config.XDS, caps *backends.Caps, log *slog.Logger, metrics *serverMetrics,
	panics *background.Reporter, install func(*descriptors.Set) error) (empty ruleSource, err error) {
	x := &xdsRules{conf: conf, log: log, metrics: metrics}
	opt := xds.Options{
		Address: conf.Address, NodeID: conf.NodeID,
		Metadata: config.Pairs(conf.Metadata, "="), Headers: config.Pairs(conf.Headers, ":"),
		Overflow:   x.overflow(caps),
		MaxMessage: conf.MaxMessage, RemovalGrace: conf.RemovalGrace, Cache: conf.Cache,
		Check:    func(set *descriptors.Set) []descriptors.Problem { return ratelimit.CapProblems(set, caps) },
		Install:  install,
		OnUpdate: x.updated,
		Log:      log, Panics: panics,
	}
	if conf.TLS {
		opt.TLS = &conf.Files
	}
	if x.overlay, err = x.readOverlay(); err != nil {
		return empty, err
	}
	opt.Overlay = x.overlay
	if x.client, err = xds.New(opt); err != nil {
		return empty, fmt.Errorf("--xds: %w", err)
	}
	metrics.Add(x.client.Rows()...)
	return ruleSource{name: "xds " + conf.Address, first: x.client.First(), run: x.run, part: x.part,
		describe: func(w io.Writer) error { return x.client.Status().Describe(w, time.Now()) }}, nil
}

// overflow is what limits take of a cost that has no room: what is left, as with the
// reference service, if the backend can.
func (x *xdsRules) overflow(caps *backends.Caps) limit.Overflow {
	if caps.Algorithms[limit.FixedWindow].Overflow >= limit.Saturate {
		return limit.Saturate
	}
	x.log.Warn(
		"the backend does not keep overflow saturate: it counts no cost, reported after the response, that has no room",
		"backend", caps.Name)
	return limit.Refuse
}

// readOverlay reads the files of --xds-overlay.
func (x *xdsRules) readOverlay() (*overlay.Overlay, error) {
	if len(x.conf.Overlays) == 0 {
		return nil, nil
	}
	sources, err := files.ReadPaths(x.conf.Overlays, files.Names{})
	if err != nil {
		return nil, fmt.Errorf("--xds-overlay: %w", err)
	}
	o, problems := overlay.Load(sources)
	if o == nil {
		return nil, fmt.Errorf("--xds-overlay: %w", &files.LoadError{Problems: problems})
	}
	return o, nil
}

// updated notes whether all that the control plane has sent is in force.
func (x *xdsRules) updated(ok bool) { x.note(&x.rejected, ok) }

// note notes whether the update, or the overlay, is in force. The metric says whether both are.
func (x *xdsRules) note(failed *atomic.Bool, ok bool) {
	failed.Store(!ok)
	switch {
	case !ok:
		x.metrics.rulesFailed()
	case !x.rejected.Load() && !x.unlaid.Load():
		x.metrics.rulesRead()
	}
}

func (x *xdsRules) run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { x.followOverlay(ctx) })
	x.client.Restore()
	x.client.Run(ctx)
	running.Wait()
	return nil
}

// followOverlay lays the overlay over the rules again as its files change. Files with
// errors change nothing.
func (x *xdsRules) followOverlay(ctx context.Context) {
	if len(x.conf.Overlays) == 0 {
		return
	}
	inForce := x.overlay.Sum()
	err := watch.Follow(ctx, x.conf.Overlays, x.log, func(sources []rulefile.Source, err error) {
		var o *overlay.Overlay
		if err == nil {
			var problems []descriptors.Problem
			if o, problems = overlay.Load(sources); o == nil {
				err = &files.LoadError{Problems: problems}
			}
		}
		x.note(&x.unlaid, err == nil)
		if err != nil {
			x.log.Error("overlay not reloaded; the old one stays in force", "error", err)
			return
		}
		if bytes.Equal(o.Sum(), inForce) {
			return
		}
		inForce = o.Sum()
		x.log.Info("overlay reloaded", "files", len(sources))
		x.client.Lay(o)
	})
	if err != nil && ctx.Err() == nil {
		x.log.Error("stopped watching the overlay; its last version stays in force", "error", err)
	}
}

// part reports whether there are rules, and what the control plane has sent that is not in
// force. The service is ready with rules, whatever becomes of the control plane.
func (x *xdsRules) part() web.Part {
	s := x.client.Status()
	p := web.Part{Name: "rules", Serving: s.Rules}
	var list []string
	if !s.Rules {
		list = append(list, "none have come from the control plane")
	}
	if !s.Connected {
		list = append(list, "the control plane is not connected")
	}
	if s.Rules && s.Cached {
		list = append(list, "those of the cache file are in force")
	}
	if n := len(s.Rejected); n > 0 || s.Wrong > 0 {
		list = append(list, fmt.Sprintf("rejected domains: %d, problems: %d", n, s.Wrong))
	}
	if x.unlaid.Load() {
		list = append(list, "the files of the overlay have errors; the old overlay is in force")
	}
	p.Problem = strings.Join(list, "; ")
	return p
}

// waitsForRules reports whether the gRPC port opens only with the first rules, or after --xds-wait.
func (s *server) waitsForRules() bool { return s.conf.XDS.Address != "" && s.conf.XDS.Wait > 0 }

// awaitRules waits for the first rules, within --xds-wait.
func (s *server) awaitRules(ctx context.Context) {
	if !s.waitsForRules() {
		return
	}
	s.log.Info("waiting for the first rules of the control plane", "xds", s.conf.XDS.Address, "wait", s.conf.XDS.Wait)
	select {
	case <-s.limits.rules.first:
	case <-ctx.Done():
	case <-time.After(s.conf.XDS.Wait):
		s.log.Error("no rules received; serving anyway, and calls get an error until rules arrive", "waited", s.conf.XDS.Wait)
	}
}
