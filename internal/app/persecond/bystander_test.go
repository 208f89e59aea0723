package persecond

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// A frozen store answers when its callers' time is over.
type frozen struct{ backends.Backend }

func (frozen) Take(ctx context.Context, _ []limit.Request, out []limit.Verdict) {
	<-ctx.Done()
	backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err()))
}

// A punctual store, like those elsewhere, decides nothing for callers whose time is over.
type punctual struct{ backends.Backend }

func (p punctual) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if ctx.Err() != nil {
		backends.Fail(out, fmt.Errorf("%w: %w: %w", backends.ErrUnavailable, backends.ErrNotApplied, ctx.Err()))
		return
	}
	p.Backend.Take(ctx, reqs, out)
}

// The store of seconds is frozen. A request of the main store is decided, whatever else the slice has.
func TestAFrozenStoreOfSecondsFailsNoOtherRequests(t *testing.T) {
	s := &split{main: punctual{memory.New(memory.Config{})}, second: frozen{}}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	at := now()
	out := make([]limit.Verdict, 2)
	other := limit.Op{Key: limit.Key{Group: "other", Limit: "h"}, Limit: windowOf(time.Hour, 2), Cost: 1}
	s.Take(ctx, []limit.Request{{Ops: ops(false), At: at}, {Ops: []limit.Op{other}, At: at}}, out)
	if out[0].Err == nil {
		t.Errorf("of both: %+v", out[0])
	}
	if out[1].Err != nil || !out[1].Admitted {
		t.Errorf("of the main store alone: %+v, want it admitted", out[1])
	}
}

// Too many requests for one of the stores are an overload, also if the other one decides: it has a policy of its own.
func TestOverloadOfOneOfTwoStores(t *testing.T) {
	flooded := broken{err: fmt.Errorf("%w: %w: %w", backends.ErrOverloaded, backends.ErrUnavailable,
		backends.ErrNotApplied)}
	for _, each := range []bool{true, false} {
		for name, s := range map[string]*split{
			"the main store":       {main: flooded, second: memory.New(memory.Config{})},
			"the store of seconds": {main: memory.New(memory.Config{}), second: flooded},
		} {
			out := make([]limit.Verdict, 1)
			s.Take(t.Context(), []limit.Request{{Ops: ops(each), At: now()}}, out)
			if err := out[0].Err; !errors.Is(err, backends.ErrOverloaded) || errors.Is(err, backends.ErrNotApplied) {
				t.Errorf("%s is flooded, each %v: %v, want an overload that has perhaps been applied", name, each, err)
			}
		}
	}
}

// Requests that share a key with one that waits wait, too, also by way of others. No others wait.
func TestWaiting(t *testing.T) {
	req := func(window time.Duration, keys ...string) (r limit.Request) {
		for _, key := range keys {
			r.Ops = append(r.Ops, limit.Op{Key: limit.Key{Group: key, Limit: "h"}, Limit: windowOf(window, 2)})
		}
		return r
	}
	both := req(time.Hour, "c")
	both.Ops = append(both.Ops, req(time.Second, "s").Ops...)
	got := waiting([]limit.Request{req(time.Hour, "a"), req(time.Hour, "x", "y"), req(time.Hour, "a", "b"),
		req(time.Hour, "b", "c"), both, req(time.Hour, "y"), req(time.Second, "s"), req(time.Hour, "c")})
	if want := []bool{true, false, true, true, true, false, true, true}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
