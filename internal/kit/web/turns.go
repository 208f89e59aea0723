package web

import (
	"container/list"
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Turns let the requests of all servers that share them take turns, so that half of the cores, where there are more
// than one, are left to others. A request that waits for its client, or for a store in another process, does not keep
// its turn.
type Turns struct {
	Waited, Refused metrics.Counter // requests

	mu      sync.Mutex
	free    int              // turns that nobody has
	waiting [ranks]list.List // of chan struct{}, which is closed when the turn of who waits has come
	passed  bool             // the last turn went to a health check, before others
}

// A rank says who goes first of those that wait.
type rank uint8

const (
	urgent rank = iota // health checks: every other turn at most, so that a flood of them does not keep others out
	begun              // a request that has had a turn: the sooner it ends, the sooner its memory is free
	fresh
	ranks
)

// orders are the ranks in the order in which they are looked for who is next: after a turn of others, and after one of
// a health check.
var orders = map[bool][ranks]rank{false: {urgent, begun, fresh}, true: {begun, fresh, urgent}}

// NewTurns returns turns for half of the cores.
func NewTurns() *Turns { return &Turns{free: max(1, runtime.GOMAXPROCS(0)/2)} }

const (
	// turnLasts is how long a turn lasts at most: who computes for longer most likely waits, and does not say so.
	turnLasts = 50 * time.Millisecond
	// turnWithin is how long a request may wait for a turn.
	turnWithin = 2 * time.Second
)

// take waits for a turn, and reports whether it has come.
func (t *Turns) take(ctx context.Context, as rank) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	at := t.waiting[as].PushBack(mine)
	t.mu.Unlock()
	if as != begun {
		t.Waited.Inc()
	}
	timer := time.NewTimer(turnWithin)
	defer timer.Stop()
	select {
	case <-mine:
		runtime.Gosched() // who gave the turn back made us run before all others
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine: // both at once
		return true
	default:
		t.waiting[as].Remove(at)
		return false
	}
}

// give gives a turn to the next.
func (t *Turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range orders[t.passed] {
		if first := t.waiting[of].Front(); first != nil {
			t.passed = of == urgent
			close(t.waiting[of].Remove(first).(chan struct{}))
			return
		}
	}
	t.passed = false
	t.free++
}

// Borrow waits for a turn, for work that requests share. Who waits for that work has none. The turn is taken as one of
// a request that has begun; if it does not come in time, the work goes on without.
func (t *Turns) Borrow(ctx context.Context) (done func()) {
	own := &turn{of: t, as: begun}
	own.take(ctx)
	return own.end
}

// A turn is that of one request.
type turn struct {
	of *Turns
	as rank // with which it is taken the next time

	mu     sync.Mutex
	has    bool
	yields int         // how many are waiting for others, without it
	timer  *time.Timer // gives it back
}

// take waits for the turn.
func (t *turn) take(ctx context.Context) bool {
	if !t.of.take(ctx, t.as) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.has, t.as = true, begun
	t.timer = time.AfterFunc(turnLasts, t.end)
	return true
}

// end gives the turn back, if there is one.
func (t *turn) end() {
	t.mu.Lock()
	had := t.has
	t.has = false
	if had {
		t.timer.Stop()
	}
	t.mu.Unlock()
	if had {
		t.of.give()
	}
}

// yield gives the turn back until what it returns is called. It may be called by several goroutines, which all wait:
// the last to go on takes the turn.
func (t *turn) yield(ctx context.Context) (resume func()) {
	t.mu.Lock()
	t.yields++
	t.mu.Unlock()
	t.end()
	return func() {
		t.mu.Lock()
		t.yields--
		last := t.yields == 0
		t.mu.Unlock()
		if last {
			t.take(ctx) // in vain only if the client is gone, or if nothing moves
		}
	}
}

// Yield is [background.Yield], for handlers: it gives back the turn of a request that goes on to wait for others.
func Yield(ctx context.Context) (resume func()) { return background.Yield(ctx) }

// YieldIf is [background.YieldIf], for handlers.
func YieldIf(ctx context.Context, waits bool) (resume func()) { return background.YieldIf(ctx, waits) }

// resumes takes the turn again, unless the request waits for others besides, and reports whether it has come.
func (t *turn) resumes(ctx context.Context) bool {
	t.mu.Lock()
	waits := t.yields > 0
	t.mu.Unlock()
	return waits || t.take(ctx)
}

// bound has requests wait for their turn. Those that are first wait less.
func (t *Turns) bound(first func(*http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own, ctx := &turn{of: t, as: fresh}, r.Context()
		defer own.end()
		if first != nil && first(r) {
			own.as = urgent
		}
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = turnedBody{r.Body, own, ctx} // the turn begins with what it reads
		} else if !own.take(ctx) {
			t.Refused.Inc()
			w.Header().Set("Retry-After", "1")
			Error(w, errNoTurn.Status, errNoTurn.Message)
			return
		}
		r = r.WithContext(background.WithYield(ctx, func() func() { return own.yield(ctx) }))
		next.ServeHTTP(&turnedWriter{ResponseWriter: w, turn: own, ctx: ctx}, r)
	})
}

// A turnedBody is a body that is read without a turn: its client may be slow.
type turnedBody struct {
	io.ReadCloser
	turn *turn
	ctx  context.Context
}

// Read implements io.Reader.
func (b turnedBody) Read(p []byte) (int, error) {
	b.turn.end()
	n, err := b.ReadCloser.Read(p)
	if !b.turn.resumes(b.ctx) {
		b.turn.of.Refused.Inc()
		if err == nil {
			err = errNoTurn
		}
	}
	return n, err
}

// A turnedWriter sends an answer without a turn: its client may be slow.
type turnedWriter struct {
	http.ResponseWriter
	turn *turn
	ctx  context.Context
	size int // of what was written
}

// buffered is how many bytes of an answer net/http sends with its end.
const buffered = 2 << 10

// Write implements io.Writer.
func (w *turnedWriter) Write(p []byte) (int, error) {
	if w.size += len(p); w.size > buffered {
		defer w.turn.yield(w.ctx)()
	}
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *turnedWriter) FlushError() error {
	defer w.turn.yield(w.ctx)()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (w *turnedWriter) Flush() { _ = w.FlushError() }

// Unwrap is for http.ResponseController.
func (w *turnedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var errNoTurn = &RequestError{http.StatusServiceUnavailable, "too many requests wait; try again later"}
