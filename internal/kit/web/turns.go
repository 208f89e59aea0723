package web

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Turns let the requests of all servers that share them take turns, so that half of the cores, where there are more
// than one, are left to others. A request that waits for its client or a store does not keep its turn.
type Turns struct {
	places          chan struct{}
	Waited, Refused metrics.Counter // requests
}

// NewTurns returns turns for half of the cores.
func NewTurns() *Turns { return &Turns{places: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))} }

const (
	// turnLasts is how long a turn lasts at most: by then a request most likely waits for a store.
	turnLasts = 2 * time.Millisecond
	// turnWithin is how long a request may wait for a turn.
	turnWithin = 2 * time.Second
)

// A turn is that of one request.
type turn struct {
	of    *Turns
	held  atomic.Bool
	timer *time.Timer // gives the turn back
	over  bool        // no turn is needed any more
}

type turnKey struct{}

// EndTurn gives back the turn of a request that goes on to wait for others for most of its time.
func EndTurn(ctx context.Context) {
	if t, _ := ctx.Value(turnKey{}).(*turn); t != nil {
		t.over = true
		t.giveBack()
	}
}

// bound has requests wait for their turn.
func (t *Turns) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := &turn{of: t}
		defer own.giveBack()
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = turnedBody{r.Body, own, r.Context()} // the turn begins with what it reads
		} else if !own.take(r.Context()) {
			w.Header().Set("Retry-After", "1")
			Error(w, errNoTurn.Status, errNoTurn.Message)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), turnKey{}, own)))
	})
}

// take waits for a turn.
func (t *turn) take(ctx context.Context) bool {
	select {
	case t.of.places <- struct{}{}:
		t.begin()
		return true
	default:
	}
	t.of.Waited.Inc()
	select {
	case t.of.places <- struct{}{}:
		t.begin()
		runtime.Gosched() // who gave the turn back made us run before all others
		return true
	case <-ctx.Done():
	case <-time.After(turnWithin):
	}
	t.of.Refused.Inc()
	return false
}

func (t *turn) begin() {
	t.held.Store(true)
	t.timer = time.AfterFunc(turnLasts, t.end)
}

// giveBack ends the turn, if there is one.
func (t *turn) giveBack() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.end()
}

// end gives the turn to the next. It may be called again.
func (t *turn) end() {
	if t.held.CompareAndSwap(true, false) {
		<-t.of.places
	}
}

// A turnedBody is a body that is read without a turn: its client may be slow.
type turnedBody struct {
	io.ReadCloser
	turn *turn
	ctx  context.Context
}

// Read implements io.Reader.
func (b turnedBody) Read(p []byte) (int, error) {
	b.turn.giveBack()
	n, err := b.ReadCloser.Read(p)
	if !b.turn.over && !b.turn.take(b.ctx) && err == nil {
		err = errNoTurn
	}
	return n, err
}

var errNoTurn = &RequestError{http.StatusServiceUnavailable, "too many requests wait; try again later"}
