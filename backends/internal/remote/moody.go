package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// ErrDown is what a Moody store that is Down fails with.
var ErrDown = fmt.Errorf("%w: no answer", backends.ErrUnavailable)

// A Way is how a Moody store treats a call: it takes its time, and may return
// what the call fails with.
type Way func(ctx context.Context) error

// Well lets calls be decided.
func Well(context.Context) error { return nil }

// Down fails calls at once.
func Down(context.Context) error { return ErrDown }

// Mute does not answer calls before their context ends.
func Mute(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err())
}

// Slow takes d for each call, whatever its context says.
func Slow(d time.Duration) Way {
	return func(context.Context) error {
		time.Sleep(d)
		return nil
	}
}

// Within takes d for each call, or until its context ends.
func Within(d time.Duration) Way {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err())
		}
	}
}

// A Moody store treats calls as the test demands, in the way of the moment.
type Moody struct {
	backends.Backend       // keeps the state; tests may ask it directly
	Partly           error // fails the second request of a slice, if set
	Unhurt           bool  // Ping works, however Take behaves
	Closed           bool  // Close was called

	mu           sync.Mutex
	way          Way
	takes, pings int
}

// NewMoody returns a store that is well and keeps its state in b.
func NewMoody(b backends.Backend) *Moody { return &Moody{Backend: b} }

// Behave treats calls in another way from now on; nil is [Well].
func (s *Moody) Behave(way Way) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.way = way
}

// Calls returns how many Takes and Pings there were.
func (s *Moody) Calls() (takes, pings int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes, s.pings
}

func (s *Moody) begin(calls *int) Way {
	s.mu.Lock()
	defer s.mu.Unlock()
	*calls++
	if s.way == nil || s.Unhurt && calls != &s.takes {
		return Well
	}
	return s.way
}

// Take implements [backends.Backend].
func (s *Moody) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if err := s.begin(&s.takes)(ctx); err != nil {
		backends.Fail(out, err)
		return
	}
	for i := range out {
		if i == 1 && s.Partly != nil {
			backends.Fail(out[i:i+1], s.Partly)
			continue
		}
		s.Backend.Take(ctx, reqs[i:i+1], out[i:i+1])
	}
}

// Forget implements [backends.Backend].
func (s *Moody) Forget(ctx context.Context, keys []limit.Key) error {
	if err := s.begin(new(int))(ctx); err != nil {
		return err
	}
	return s.Backend.Forget(ctx, keys)
}

// Ping implements [backends.Backend].
func (s *Moody) Ping(ctx context.Context) error { return s.begin(&s.pings)(ctx) }

// Close notes that it was called, and leaves the state.
func (s *Moody) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Closed = true
	return nil
}

// Start is a time for requests.
const Start = limit.Instant(1_800_000_000_000_000)

// Hour is a limit that does not refuse the requests of a test.
var Hour = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1_000_000, Window: time.Hour})

// Requests returns n requests of one counter, and room for their verdicts.
func Requests(n int) ([]limit.Request, []limit.Verdict) {
	reqs := make([]limit.Request, n)
	for i := range reqs {
		reqs[i] = limit.Request{At: Start, Ops: []limit.Op{{Key: limit.Key{Group: "g"}, Limit: Hour, Cost: 1}}}
	}
	return reqs, make([]limit.Verdict, n)
}
