package backends_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// tinyCaps is what a tiny store promises, and is held to.
func tinyCaps() backends.Caps {
	return backends.Caps{
		Name: "tiny",
		Algorithms: map[limit.Algorithm]backends.AlgorithmCaps{
			limit.FixedWindow: {MaxUnits: limit.MaxUnits},
			limit.TokenBucket: {MaxUnits: limit.MaxUnits},
		},
		Atomicity: backends.Whole, Local: true, Precision: time.Microsecond, MaxOps: 8,
	}
}

// A tiny store is the least that keeps the contract: a map, a lock, and the
// reference model, which decides. It never drops a state.
type tiny struct {
	mu     sync.Mutex
	caps   backends.Caps
	states map[limit.Key]limit.State
}

func newTiny() *tiny { return &tiny{caps: tinyCaps(), states: map[limit.Key]limit.State{}} }

func (s *tiny) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range reqs {
		if err := s.caps.CheckRequest(&reqs[i]); err != nil {
			backends.Fail(out[i:i+1], err)
			continue
		}
		s.decide(&reqs[i], &out[i])
	}
}

// decide goes backwards where it stores: of ops that share a key, the state of
// the first counts.
func (s *tiny) decide(req *limit.Request, v *limit.Verdict) {
	states := make([]limit.State, len(req.Ops))
	for i := range states {
		states[i] = s.states[req.Ops[i].Key]
	}
	limit.Decide(states, req, req.At, v, nil)
	for i := len(states) - 1; i >= 0; i-- {
		s.states[req.Ops[i].Key] = states[i]
	}
}

func (s *tiny) Forget(_ context.Context, keys []limit.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		delete(s.states, k)
	}
	return nil
}

func (s *tiny) Ping(context.Context) error { return nil }
func (s *tiny) Close() error               { return nil }

// TestTinyStoreKeepsTheContract: the store that documents the contract keeps it.
func TestTinyStoreKeepsTheContract(t *testing.T) {
	backendtest.Run(t, backendtest.Suite{
		Caps: tinyCaps(), Open: func(testing.TB) backends.Backend { return newTiny() }, Rounds: 20,
	})
}

// A store implements four methods and states its Caps. limit.Decide has the
// algorithms; a store that decides elsewhere, as Redis does in a script, answers
// as limit.Decide would.
func ExampleBackend() {
	var b backends.Backend = newTiny()
	defer b.Close()
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 2, Window: time.Minute})
	req := limit.Request{
		At:  limit.InstantOf(time.Date(2030, 1, 1, 0, 0, 15, 0, time.UTC)),
		Ops: []limit.Op{{Key: limit.Key{Group: "alice", Limit: "per minute"}, Limit: l, Cost: 1}},
	}
	out := make([]limit.Verdict, 3)
	b.Take(context.Background(), []limit.Request{req, req, req}, out)
	for _, v := range out {
		o := v.Outcomes[0]
		fmt.Println(v.Admitted, "remaining", o.Remaining, "retry in", o.Retry)
	}
	// Output:
	// true remaining 1 retry in 0s
	// true remaining 0 retry in 45s
	// false remaining 0 retry in 45s
}

// Caps are known without connecting, so rules can be checked against a store
// that is elsewhere.
func ExampleCaps_Check() {
	caps := tinyCaps()
	err := caps.Check(limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 5, Window: time.Hour}))
	fmt.Println(err, errors.Is(err, backends.ErrUnsupported))
	// Output:
	// unsupported operation: backend tiny has no sliding_log true
}

// A store describes its metrics as figures. The code that opens it passes them to a metrics
// library.
func ExampleFigured() {
	var b backends.Backend = memory.New(memory.Config{})
	for _, f := range b.(backends.Figured).Figures()[:1] {
		fmt.Println(f.Name, f.Value())
	}
	// Output:
	// headgate_memory_keys 0
}
