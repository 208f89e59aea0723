package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/backends/layers"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// A flaky store fails some requests: before they are decided, or after, when its answer is lost.
type flaky struct {
	*remote.Store
	mu   sync.Mutex
	rand *rand.Rand
	well bool
}

var (
	errLost       = fmt.Errorf("%w: the answer is lost", backends.ErrUnavailable)
	errTurnedDown = fmt.Errorf("%w: %w: turned down", backends.ErrUnavailable, backends.ErrNotApplied)
)

func (f *flaky) draw() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.well {
		return 99
	}
	return f.rand.IntN(30)
}

func (f *flaky) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	whole := f.draw() // of the slice
	for i := range reqs {
		fate := f.draw()
		if whole < 4 {
			fate = whole
		}
		if fate > 1 {
			f.Store.Take(ctx, reqs[i:i+1], out[i:i+1])
		}
		switch fate {
		case 0:
			backends.Fail(out[i:i+1], errTurnedDown)
		case 1, 2: // and so it was not decided, or it was
			backends.Fail(out[i:i+1], errLost)
		}
	}
}

// An account is what callers were told of a key.
type account struct {
	limit                 *limit.Limit
	units                 int64 // charged, less those that were given back
	maybe, maybeBack, had int64 // of requests in doubt; had: so many may be given back
	doubts                int64 // errors in doubt
}

// Behind all layers, whatever fails: what was admitted is recorded, and what is recorded was admitted or is
// in doubt. In the end callers get all the rest, and nobody is refused who has room.
func TestLayersAreExactWhileTheStoreFails(t *testing.T) {
	for round := range random.Times(4, 60) {
		exactRound(t, random.Rand(t, uint64(round)))
	}
}

func exactRound(t *testing.T, r *rand.Rand) {
	t.Helper()
	const most = 120
	clock := remote.NewClock()
	caps, err := Caps("redis://nowhere")
	if err != nil {
		t.Fatal(err)
	}
	inner := memory.New(memory.Config{})
	store := &flaky{Store: remote.NewStore(inner, caps, clock.Now), rand: rand.New(rand.NewPCG(r.Uint64(), 1))}
	b := layers.Around(backends.Inside{
		Options: backends.Options{Log: slog.New(slog.DiscardHandler), Now: time.Now}, Caps: *store.Caps(),
		Store: store, Next: store, Memory: memory.New(memory.Config{}), Instants: clock.Micro,
	})
	defer b.Close()

	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	accounts := map[string]*account{}
	for i, n := range names {
		l := limit.MustNew(limit.Spec{Algorithm: limit.Algorithms()[i%4], Max: most, Window: 24 * time.Hour,
			Overflow: []limit.Overflow{limit.Refuse, limit.Saturate}[i/4]})
		if i%4 == r.IntN(4) {
			l = l.WithShare(7)
		}
		accounts[n] = &account{limit: l}
	}
	var mu sync.Mutex
	tell := func(req *limit.Request, v *limit.Verdict) {
		mu.Lock()
		defer mu.Unlock()
		for i := range req.Ops {
			op, a := &req.Ops[i], accounts[req.Ops[i].Key.Group]
			switch {
			case v.Err != nil && errors.Is(v.Err, backends.ErrNotApplied):
				if op.Cost < 0 {
					a.had -= op.Cost
				}
			case v.Recalled && !op.Each: // is refused, so the store took nothing
			case v.Err != nil, v.Recalled:
				a.doubts++
				a.maybe += max(op.Cost, 0)
				a.maybeBack += max(-op.Cost, 0)
			case v.Outcomes[i].Taken > 0:
				a.units += v.Outcomes[i].Taken
			case v.Admitted || op.Each && v.Outcomes[i].Admitted:
				a.units += op.Cost
				a.had += max(op.Cost, 0)
			case op.Cost < 0:
				a.had -= op.Cost
			}
		}
	}
	var all sync.WaitGroup
	for range 4 {
		own := rand.New(rand.NewPCG(r.Uint64(), 2))
		all.Go(func() {
			for range 300 {
				req := limit.Request{}
				back := own.IntN(8) == 0
				for _, i := range own.Perm(len(names))[:1+own.IntN(3)] {
					mu.Lock()
					a := accounts[names[i]]
					op := limit.Op{Key: limit.Key{Group: names[i], Limit: "l"}, Limit: a.limit, Cost: own.Int64N(4),
						Each: own.IntN(6) == 0}
					if back {
						op.Cost = -min(a.had, 1+own.Int64N(3))
						a.had += op.Cost
					}
					mu.Unlock()
					req.Ops = append(req.Ops, op)
				}
				out := make([]limit.Verdict, 1)
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				b.Take(ctx, []limit.Request{req}, out)
				cancel()
				tell(&req, &out[0])
				if out[0].Err != nil {
					time.Sleep(time.Millisecond) // the breaker may be open
				}
			}
		})
	}
	all.Wait()
	used := func(n string) int64 {
		out := make([]limit.Verdict, 1)
		inner.Take(context.Background(), []limit.Request{
			{At: clock.Micro(), Ops: []limit.Op{{Key: limit.Key{Group: n, Limit: "l"}, Limit: accounts[n].limit}}}}, out)
		return most - out[0].Outcomes[0].Remaining
	}
	for _, n := range names {
		a := accounts[n]
		ahead := (a.doubts + 1) * (a.limit.Share() - 1)
		if got := used(n); got < a.units-a.maybeBack || got > a.units+a.maybe+max(ahead, 0) {
			t.Errorf("%s, %v: %d units are recorded; callers know of %d, and %d more and %d less are in doubt", n, a.limit, got,
				a.units, a.maybe, a.maybeBack)
		}
	}
	t.Logf("%d calls of the store with %d requests", store.Calls.Load(), store.Requests.Load())
	store.mu.Lock()
	store.well = true
	store.mu.Unlock()
	for _, n := range names {
		a := accounts[n]
		for deadline := time.Now().Add(10 * time.Second); ; {
			req := limit.Request{Ops: []limit.Op{{Key: limit.Key{Group: n, Limit: "l"}, Limit: a.limit, Cost: 1}}}
			out := make([]limit.Verdict, 1)
			b.Take(context.Background(), []limit.Request{req}, out)
			if time.Now().After(deadline) {
				t.Fatalf("%s: it does not go on: %+v", n, out[0])
			}
			if out[0].Err != nil {
				time.Sleep(time.Millisecond) // the breaker is open
				continue
			}
			tell(&req, &out[0])
			if !out[0].Admitted {
				break
			}
		}
		if a.units > most+a.maybeBack {
			t.Errorf("%s, %v: callers got %d of %d units, and may have given %d back", n, a.limit, a.units, most, a.maybeBack)
		}
		if got := used(n); got != most {
			t.Errorf("%s, %v: refused at %d of %d units", n, a.limit, got, most)
		}
		if ahead := a.doubts * max(a.limit.Share()-1, 0); a.units < most-a.maybe-ahead {
			t.Errorf("%s, %v: callers got %d of %d units, and %d are in doubt", n, a.limit, a.units, most, a.maybe)
		}
	}
}
