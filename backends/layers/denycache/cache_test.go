package denycache

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// Memory does not grow with the number of refused keys.
func TestMemoryIsFlat(t *testing.T) {
	c := remote.NewClock()
	s := refusing(c.Now)
	b := New(s, s.Caps(), c.Now)
	l := newLimit(limit.FixedWindow, 1, time.Hour)
	reqs, out := make([]limit.Request, 64), make([]limit.Verdict, 64)
	for i := range reqs {
		reqs[i].Ops = make([]limit.Op, 1)
	}
	fill := func(from, to int) {
		for i := from; i < to; i += len(reqs) {
			for j := range reqs {
				reqs[j].Ops[0] = op("key"+strconv.Itoa(i+j), l, 1)
			}
			b.Take(context.Background(), reqs, out)
		}
	}
	fill(0, 200_000)
	full := heap()
	more := random.Times(300_000, 1_000_000)
	fill(200_000, 200_000+more)
	if grown := int64(heap()) - int64(full); grown > 1<<20 {
		t.Errorf("%d bytes more after %d keys", grown, more)
	}
	st := b.stats()
	t.Logf("%+v", st)
	if st.entries > 100_000 || st.entries < 99_000 || st.evictions < uint64(more) {
		t.Errorf("%+v", st)
	}
	runtime.KeepAlive(b)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// In a set that is full, what came first goes first.
func TestEvictionTakesTheOldestFirst(t *testing.T) {
	r := newRig(t, time.Second)
	r.cache.init(1)
	l := newLimit(limit.FixedWindow, 0, time.Hour)
	for i := range 12 {
		r.want("new", false, true, op(strconv.Itoa(i), l, 1))
	}
	for i := 4; i < 12; i++ {
		r.want("known", false, false, op(strconv.Itoa(i), l, 1))
	}
	if got, want := r.stats(), (stats{hits: 8, entries: 8, evictions: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.want("gone", false, true, op("3", l, 1))
	r.clock.Add(time.Second)
	for i := 5; i < 12; i++ {
		r.want("old", false, true, op(strconv.Itoa(i), l, 1))
	}
	if n := r.stats().entries; n != 8 {
		t.Errorf("%d entries", n)
	}
}

func TestStatsCountHitsAndEntries(t *testing.T) {
	r := newRig(t, time.Second)
	l := newLimit(limit.TokenBucket, 1, time.Hour)
	o, other := op("k", l, 1), op("other", l, 1)
	r.exhaust(o)
	r.exhaust(other)
	r.take(o)
	r.take(o)
	o.Cost = -1
	r.take(o)
	if got, want := r.stats(), (stats{hits: 2, entries: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	_ = r.Forget(context.Background(), []limit.Key{other.Key})
	if got, want := r.stats(), (stats{hits: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A refusal that was decided before a change, and arrives after it, is not kept.
func TestChangeOvertakesRefusal(t *testing.T) {
	ctx := context.Background()
	for _, a := range limit.Algorithms() {
		o := op("k", newLimit(a, 1, time.Hour), 1)
		refund := o
		refund.Cost = -1
		for name, change := range map[string]func(r *rig){
			"refund": func(r *rig) { r.take(refund) },
			"refund in a slice": func(r *rig) {
				r.Take(ctx, []limit.Request{{Ops: []limit.Op{op("x", o.Limit, 1)}}, {Ops: []limit.Op{refund}}},
					make([]limit.Verdict, 2))
			},
			"forget": func(r *rig) { _ = r.Forget(ctx, []limit.Key{o.Key}) },
		} {
			t.Run(a.String()+"/"+name, func(t *testing.T) {
				r := newRig(t, time.Second)
				r.take(o)
				r.store.Reply = func([]limit.Request) {
					r.store.Reply = nil
					change(r)
				}
				if v, _ := r.take(o); v.Admitted {
					t.Fatal("it was to be decided before the change")
				}
				r.want("after the change", true, true, o)
			})
		}
	}
}

// While a change is under way, and when it is back, nothing is answered here
// that was known before it; nor is what arrives after it but was sent, and
// decided, while it was on its way.
func TestChangeUnderWay(t *testing.T) {
	ctx := context.Background()
	for name, change := range map[string]func(r *rig, o limit.Op){
		"refund": func(r *rig, o limit.Op) { o.Cost = -1; r.take(o) },
		"forget": func(r *rig, o limit.Op) { _ = r.Forget(ctx, []limit.Key{o.Key}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, time.Second)
			o := op("k", newLimit(limit.TokenBucket, 1, time.Hour), 1)
			r.exhaust(o)
			decided, back := make(chan bool), make(chan bool)
			var slow sync.WaitGroup
			r.store.Trip = func([]limit.Request) {
				r.store.Trip = nil
				r.want("the change is on its way", false, true, o) // and this is known now
				r.flush()
				r.store.Reply = func([]limit.Request) {
					r.store.Reply = nil
					decided <- true
					<-back
				}
				slow.Go(func() { r.Take(ctx, []limit.Request{{Ops: []limit.Op{o}}}, make([]limit.Verdict, 1)) })
				<-decided
			}
			change(r, o)
			close(back)
			slow.Wait()
			r.want("it is back", true, true, o)
		})
	}
}

// With takes, refunds and Forgets in flight from all sides, every unit that is
// given back is had again: no refusal stays that should not. (Refusals would
// be believed for an hour.)
func TestRefundsInFlight(t *testing.T) {
	for _, a := range limit.Algorithms() {
		s := newStore(time.Now)
		s.Reply = func([]limit.Request) { runtime.Gosched() }
		b := New(s, s.Caps(), time.Now)
		b.maxAge = time.Hour
		o := op("k", newLimit(a, 1, time.Hour), 1)
		var had atomic.Int64
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				out := make([]limit.Verdict, 2)
				for ctx.Err() == nil {
					b.Take(context.Background(), []limit.Request{{Ops: []limit.Op{o}}, {Ops: []limit.Op{op("beside", o.Limit, 1)}}},
						out)
					if out[0].Admitted {
						had.Add(1)
					}
				}
			})
		}
		refund := o
		refund.Cost = -1
		for i := range int64(300) {
			for deadline := time.Now().Add(10 * time.Second); had.Load() <= i; runtime.Gosched() {
				if time.Now().After(deadline) {
					stop()
					t.Fatalf("%v: what was given back the %d. time is never had", a, i)
				}
			}
			if i%3 == 0 {
				_ = b.Forget(context.Background(), []limit.Key{o.Key})
			} else {
				b.Take(context.Background(), []limit.Request{{Ops: []limit.Op{refund}}}, make([]limit.Verdict, 1))
			}
		}
		stop()
		all.Wait()
		if n := had.Load(); n < 300 || n > 301 {
			t.Errorf("%v: %d units had of 301", a, n)
		}
		t.Logf("%v: %+v, %d calls", a, b.stats(), s.Calls.Load())
	}
}
