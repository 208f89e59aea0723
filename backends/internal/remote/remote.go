package remote

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Clock is one that tests move.
type Clock struct{ ns atomic.Int64 }

// NewClock returns a clock that shows the start of 2030.
func NewClock() *Clock {
	c := &Clock{}
	c.ns.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

// Now returns what the clock shows.
func (c *Clock) Now() time.Time { return time.Unix(0, c.ns.Load()) }

// Add moves the clock by d.
func (c *Clock) Add(d time.Duration) { c.ns.Add(int64(d)) }

// Micro returns what the clock shows as an instant.
func (c *Clock) Micro() limit.Instant { return limit.InstantOf(c.Now()) }

// A Store is a backend in memory that behaves like a remote one: it has a clock
// that all share, a precision, and takes no calls that are over. Several
// handles may share one. Fields may be set between calls, and by Trip, Reply
// and Fail while there is one call only.
type Store struct {
	Memory    backends.Backend // keeps the state; tests may ask it directly
	Now       func() time.Time
	Ahead     time.Duration // of the store's clock to Now
	Precision time.Duration
	Atomicity backends.Atomicity

	// Each may be nil.
	Trip  func(reqs []limit.Request)     // before the store decides or, then with nil, forgets
	Reply func(reqs []limit.Request)     // before the answer of a Take arrives
	Fail  func(req *limit.Request) error // after each decision: its error, if any, takes the place of the verdict

	Calls, Requests atomic.Int64 // Takes, and the requests in them

	Keep bool // the requests that arrive, for Kept
	mu   sync.Mutex
	kept []limit.Request

	caps backends.Caps
}

// NewStore returns a store that keeps its state in b, whose promises are caps,
// and whose clock is now.
func NewStore(b backends.Backend, caps backends.Caps, now func() time.Time) *Store {
	caps.ServerClock, caps.Local, caps.Algorithms = true, false, maps.Clone(caps.Algorithms)
	for a, c := range caps.Algorithms {
		c.Trips = 1
		caps.Algorithms[a] = c
	}
	return &Store{Memory: b, Now: now, Precision: caps.Precision, Atomicity: caps.Atomicity, caps: caps}
}

// Caps returns what the store promises, as its fields are now.
func (s *Store) Caps() *backends.Caps {
	caps := s.caps
	caps.Precision, caps.Atomicity = s.Precision, s.Atomicity
	return &caps
}

// Clock returns what the store's clock shows.
func (s *Store) Clock() limit.Instant { return limit.InstantOf(s.Now().Add(s.Ahead)) }

// over returns the error of a call that is over before it begins, or nil.
func over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w: %w", backends.ErrUnavailable, backends.ErrNotApplied, err)
	}
	return nil
}

// Take implements [backends.Backend].
func (s *Store) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if err := over(ctx); err != nil {
		backends.Fail(out, err)
		return
	}
	s.note(reqs)
	if s.Trip != nil {
		s.Trip(reqs)
	}
	for i := range reqs {
		req := reqs[i]
		if req.At == 0 {
			req.At = s.Clock()
		}
		req.At -= req.At % limit.Instant(s.Precision.Microseconds())
		s.Memory.Take(ctx, []limit.Request{req}, out[i:i+1])
		if s.Fail != nil {
			if err := s.Fail(&req); err != nil {
				backends.Fail(out[i:i+1], err)
			}
		}
	}
	if s.Reply != nil {
		s.Reply(reqs)
	}
}

func (s *Store) note(reqs []limit.Request) {
	s.Calls.Add(1)
	s.Requests.Add(int64(len(reqs)))
	if !s.Keep {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, req := range reqs {
		req.Ops = slices.Clone(req.Ops)
		s.kept = append(s.kept, req)
	}
}

// Kept returns the requests that have arrived while Keep was set, in order.
func (s *Store) Kept() []limit.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// Ping implements [backends.Backend].
func (s *Store) Ping(ctx context.Context) error { return over(ctx) }

// Close implements [backends.Backend]. The state stays, for other handles.
func (s *Store) Close() error { return nil }

// Forget implements [backends.Backend].
func (s *Store) Forget(ctx context.Context, keys []limit.Key) error {
	if err := over(ctx); err != nil {
		return err
	}
	if s.Trip != nil {
		s.Trip(nil)
	}
	return s.Memory.Forget(ctx, keys)
}

// Ask sends one request to b, which stands before the store, and reports whether
// the store was asked.
func (s *Store) Ask(tb testing.TB, b backends.Backend, ops ...limit.Op) (v limit.Verdict, asked bool) {
	tb.Helper()
	before := s.Calls.Load()
	out := make([]limit.Verdict, 1)
	b.Take(context.Background(), []limit.Request{{Ops: ops}}, out)
	if out[0].Err != nil {
		tb.Fatal(out[0].Err)
	}
	if len(out[0].Outcomes) != len(ops) {
		tb.Fatalf("%d outcomes for %d ops", len(out[0].Outcomes), len(ops))
	}
	return out[0], s.Calls.Load() != before
}

// Want does as Ask does and checks what becomes of the request.
func (s *Store) Want(tb testing.TB, b backends.Backend, what string, admitted, asked bool,
	ops ...limit.Op) limit.Verdict {
	tb.Helper()
	v, a := s.Ask(tb, b, ops...)
	if v.Admitted != admitted || a != asked {
		tb.Errorf("%s: admitted %v, want %v; asked the store %v, want %v", what, v.Admitted, admitted, a, asked)
	}
	return v
}

// A Constant is a store that says the same to every op. It costs nothing, so
// that only what stands before it is measured.
type Constant struct {
	*Store
	Outcome limit.Outcome
}

// Take implements [backends.Backend].
func (c *Constant) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	for i := range reqs {
		out[i].Reset(len(reqs[i].Ops))
		out[i].At, out[i].Admitted = 1, c.Outcome.Admitted
		for j := range out[i].Outcomes {
			out[i].Outcomes[j] = c.Outcome
		}
	}
}
