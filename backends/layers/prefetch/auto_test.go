package prefetch

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// A scene is replicas with shares that follow the traffic of one key, on a clock that the test moves:
// they start, stop and die.
type scene struct {
	*testing.T
	r        *rand.Rand
	clock    *remote.Clock
	store    *remote.Store
	registry backends.Registry
	replicas []*rig
	gone     []*rig // stopped: they hold nothing
	op       limit.Op
	spends   []spend
	refused  map[limit.Instant]bool  // by window
	lost     map[limit.Instant]int64 // with those that died
	began    time.Time
}

func newScene(t *testing.T, r *rand.Rand, l *limit.Limit, replicas int) *scene {
	c := remote.NewClock()
	s := &scene{T: t, r: r, clock: c, store: newStore(c.Now), registry: memory.NewRegistry(c.Now),
		op: op("k", l, 1, limit.AutoShare), refused: map[limit.Instant]bool{}, lost: map[limit.Instant]int64{},
		began: c.Now()}
	s.store.Ahead = 0
	for range replicas {
		s.start()
	}
	s.count()
	s.count()
	return s
}

func (s *scene) start() {
	b := New(s.store, s.store.Caps(), Config{Registry: s.registry}, s.clock.Now)
	s.replicas = append(s.replicas, &rig{T: s.T, Backend: b, store: s.store, clock: s.clock})
}

func (s *scene) count() {
	for _, rep := range s.replicas {
		rep.countReplicas(context.Background())
	}
}

func (s *scene) window() limit.Instant {
	return s.store.Clock() / limit.Instant(s.op.Limit.Window().Microseconds())
}

// held returns how many units all replicas hold.
func (s *scene) held() (n int64) {
	for _, rep := range s.replicas {
		n += rep.Held(&s.op)
	}
	return n
}

// event has a replica start, stop or die, and leaves one at least and most at most.
func (s *scene) event(most int) {
	i := s.r.IntN(len(s.replicas))
	rep := s.replicas[i]
	switch kind := s.r.IntN(3); {
	case kind == 0 && len(s.replicas) < most:
		s.start()
		return
	case kind == 0 || len(s.replicas) == 1:
		return
	case kind == 1:
		rep.leave(context.Background())
		if n := rep.Held(&s.op); n != 0 && s.op.Limit.Is(limit.Isolated) {
			s.Errorf("a replica that has stopped holds %d units", n)
		}
		s.gone = append(s.gone, rep)
	default: // nobody hears of it
		s.lost[s.window()] += rep.Held(&s.op)
	}
	s.replicas = slices.Delete(s.replicas, i, i+1)
}

// run lets traffic come for a time: perSecond requests, spread over the replicas unevenly.
func (s *scene) run(d time.Duration, perSecond, most int, events bool) {
	const step = 5 * time.Millisecond
	weights := []int{}
	for n := range int(d / step) {
		if n%200 == 0 { // each second
			weights = weights[:0]
			for range most {
				weights = append(weights, s.r.IntN(4)*s.r.IntN(4))
			}
			for _, rep := range s.replicas {
				rep.sweep(unused)
			}
		}
		if n%400 == 0 {
			s.count()
		}
		if events && s.r.IntN(200) == 0 {
			s.event(most)
		}
		for range perSecond / 200 {
			i := s.r.IntN(len(s.replicas))
			if weights[i] == 0 || s.r.IntN(9) >= weights[i] {
				i = 0
			}
			s.take(s.replicas[i])
		}
		for _, rep := range s.replicas {
			if s.r.IntN(3) > 0 {
				rep.balanceAll(context.Background())
			}
		}
		s.holdLittle()
		s.clock.Add(step)
	}
}

func (s *scene) take(rep *rig) {
	o, paid := s.op, s.store.Clock()
	if s.r.IntN(50) == 0 {
		o.Cost = 1 + s.r.Int64N(20)
	}
	v, asked := rep.take(o)
	if asked {
		paid = v.At
	}
	if v.Admitted {
		s.spends = append(s.spends, spend{paid, o.Cost})
	} else if o.Cost == 1 {
		s.refused[s.window()] = true
	}
}

// holdLittle: all replicas together hold at most a hundredth of the limit.
func (s *scene) holdLittle() {
	s.Helper()
	if n, most := s.held(), s.op.Limit.Capacity()/100; n > most {
		s.Fatalf("%d replicas hold %d units of %v, want at most %d", len(s.replicas), n, s.op.Limit, most)
	}
}

// check: no window of a fixed window holds more than the limit and, where requests were refused, less than
// 99 in a hundred of it; other algorithms stay within their bounds and what all replicas may hold.
func (s *scene) check(events bool) {
	l := s.op.Limit
	sums := map[limit.Instant]int64{}
	for _, e := range s.spends {
		sums[e.at/limit.Instant(l.Window().Microseconds())] += e.n
	}
	if !l.Is(limit.Isolated) {
		s.within(l.Capacity() / 50)
		return
	}
	for w, n := range sums {
		least := l.Capacity() - l.Capacity()/100
		if events {
			least -= l.Capacity()/100 + s.lost[w]
		}
		if n > l.Capacity() || s.refused[w] && n < least {
			s.Errorf("%d units of %d were admitted in a window, want at least %d; refused %v, lost %d", n, l.Capacity(), least,
				s.refused[w], s.lost[w])
		}
	}
}

// within: no interval holds more than the algorithm allows and so many units.
func (s *scene) within(beyond int64) {
	l, w := s.op.Limit, limit.Instant(s.op.Limit.Window().Microseconds())
	slices.SortStableFunc(s.spends, func(a, b spend) int { return cmp.Compare(a.at, b.at) })
	for i := 0; i < len(s.spends); i += 1 + len(s.spends)/200 {
		sum, from := int64(0), s.spends[i].at
		for _, to := range s.spends[i:] {
			sum += to.n
			d, most := to.at-from, l.Capacity()+beyond
			switch {
			case l.Is(limit.Refilled):
				most += int64(float64(d)*float64(l.Max())/float64(w) + 1e-6)
			case d >= w:
				continue
			case l.Algorithm() == limit.SlidingWindow:
				most += int64(float64(l.Max()) * float64(d) / float64(w))
			}
			if sum > most {
				s.Fatalf("%v: %d units within %v, want at most %d", l, sum, time.Duration(d)*time.Microsecond, most)
			}
		}
	}
}

// TestSharesThatFollowTheTraffic: with 1, 3 and 10 replicas that start, stop and die, the bounds of
// doc.go hold, and few requests need a trip until the limit is near.
func TestSharesThatFollowTheTraffic(t *testing.T) {
	for _, a := range sharable {
		for _, replicas := range []int{1, 3, 10} {
			for _, events := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/%v", a, replicas, events), func(t *testing.T) {
					r := random.Rand(t, 1)
					s := newScene(t, r, newLimit(a, 10_000, 4*time.Second), replicas)
					s.run(time.Duration(random.Times(5, 20))*time.Second, 4000, replicas, events)
					s.check(events)
					var hits, taken uint64
					for _, rep := range append(s.replicas, s.gone...) {
						st := rep.Stats()
						hits, taken = hits+st.Hits, taken+st.Taken
					}
					t.Logf("%d requests, %d paid here, %d trips", len(s.spends), hits, s.store.Calls.Load())
					if s.op.Limit.Is(limit.Isolated) && !events && hits < uint64(len(s.spends))/3 {
						t.Errorf("%d of %d requests needed no trip, want a third", hits, len(s.spends))
					}
				})
			}
		}
	}
}

// TestUnusedUnitsGoBack: a key that is not used any more leaves nothing behind, here or in the store.
func TestUnusedUnitsGoBack(t *testing.T) {
	for _, a := range sharable {
		for _, stops := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/stops %v", a, stops), func(t *testing.T) {
				s := newScene(t, random.Rand(t, 1), newLimit(a, 1_000_000, time.Hour), 1)
				rep := s.replicas[0]
				for range 400 {
					rep.want("an op", true, s.store.Calls.Load() == 0 || rep.Held(&s.op) == 0, s.op)
					rep.balanceAll(context.Background())
					s.clock.Add(5 * time.Millisecond)
				}
				if n := rep.Held(&s.op); n < 10 || n > 30 {
					t.Fatalf("%d units are held at 200 a second", n)
				}
				if stops {
					rep.leave(context.Background())
				} else {
					s.clock.Add(2 * unused)
					rep.sweep(unused)
					rep.balanceAll(context.Background())
					rep.sweep(unused)
					if n := rep.Stats().Keys; n != 0 {
						t.Errorf("%d keys are known", n)
					}
				}
				rest := int64(1_000_000 - 400)
				if a == limit.TokenBucket {
					rest = min(rest+int64(s.clock.Now().Sub(s.began).Seconds()*1_000_000/3600), 1_000_000)
				}
				lost := int64(rep.Stats().Expired)
				held, left := rep.Held(&s.op), rep.inStore(s.op)
				if held != 0 || left < rest-lost-1 || lost > 10 {
					t.Errorf("%d are held, %d left in the store, %d lost; want %d left", held, left, lost, rest)
				}
			})
		}
	}
}

// busy has each replica take many units in 20 ms.
func (s *scene) busy(replicas ...*rig) {
	for range 20 {
		for _, rep := range replicas {
			for range 200 {
				s.take(rep)
			}
			rep.balanceAll(context.Background())
		}
		s.clock.Add(time.Millisecond)
	}
}

// TestReplicasThatStartOneByOne: each knows only of those before it, and all hold no more than a hundredth.
func TestReplicasThatStartOneByOne(t *testing.T) {
	s := newScene(t, random.Rand(t, 1), newLimit(limit.FixedWindow, 100_000, time.Hour), 0)
	for range 10 {
		s.start()
		last := s.replicas[len(s.replicas)-1]
		last.countReplicas(context.Background())
		s.busy(last)
		s.holdLittle()
	}
	if s.held() == 0 {
		t.Error("the first replica is alone, and holds nothing")
	}
}

// TestRowsThatAreLost: replicas whose store has lost the registry take no more ahead than before.
func TestRowsThatAreLost(t *testing.T) {
	s := newScene(t, random.Rand(t, 1), newLimit(limit.FixedWindow, 100_000, time.Hour), 10)
	for _, rep := range s.replicas {
		if err := s.registry.Drop(context.Background(), table, []string{rep.me}); err != nil {
			t.Fatal(err)
		}
	}
	for _, rep := range s.replicas {
		rep.countReplicas(context.Background())
		s.busy(rep)
		s.holdLittle()
	}
	s.count()
	s.busy(s.replicas...)
	s.holdLittle()
}

// TestSlowKeysTakeNothingAhead: a key that is used now and then costs no more trips than without a share.
func TestSlowKeysTakeNothingAhead(t *testing.T) {
	s := newScene(t, random.Rand(t, 1), newLimit(limit.FixedWindow, 1_000_000, time.Hour), 1)
	for range 100 {
		s.replicas[0].want("an op", true, true, s.op)
		s.replicas[0].balanceAll(context.Background())
		s.clock.Add(600 * time.Millisecond)
	}
	if n := s.store.Calls.Load(); n != 100 || s.held() != 0 {
		t.Errorf("%d trips for 100 requests, %d units are held", n, s.held())
	}
}

// TestReplicasMustBeKnown: nothing is taken ahead until the replicas are counted, as when the registry fails.
func TestReplicasMustBeKnown(t *testing.T) {
	s := newScene(t, random.Rand(t, 1), newLimit(limit.FixedWindow, 1_000_000, time.Hour), 0)
	s.start()
	for range 500 {
		s.replicas[0].want("an op", true, true, s.op)
		s.replicas[0].balanceAll(context.Background())
		s.clock.Add(time.Millisecond)
	}
	if n := s.held(); n != 0 {
		t.Errorf("%d units are held, though nobody has counted the replicas", n)
	}
}

// TestIdleReplicasForgetTheOthers: a replica that has not counted the others for long takes nothing ahead before it
// has counted them again: they may be many more by now.
func TestIdleReplicasForgetTheOthers(t *testing.T) {
	s := newScene(t, random.Rand(t, 1), newLimit(limit.FixedWindow, 1_000_000, time.Hour), 1)
	rep := s.replicas[0]
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		rep.Backend.Run(ctx)
	}()
	defer func() {
		stop()
		<-done
	}()
	until := func(n int64) {
		t.Helper()
		for i := 0; rep.replicas.Load() != n; i++ {
			if i == 500 {
				t.Fatalf("%d replicas are known, want %d", rep.replicas.Load(), n)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	until(0) // there is no traffic
	rep.want("an op", true, true, s.op)
	until(1)
	s.clock.Add(idle + time.Second)
	until(0)
}

// TestStopBetweenTrips: a replica that stops while it gives units back finishes that.
func TestStopBetweenTrips(t *testing.T) {
	const keys, each = 3 * maxTrip, 100
	s := newScene(t, random.Rand(t, 1), newLimit(limit.FixedWindow, 1_000_000, time.Hour), 1)
	rep := s.replicas[0]
	ops := make([]limit.Op, keys)
	for i := range ops {
		ops[i] = s.op
		ops[i].Key.Group = fmt.Sprint(i)
		for range each {
			rep.take(ops[i])
		}
	}
	held := int64(0)
	for i := range ops {
		held += rep.Held(&ops[i])
	}
	ctx, stop := context.WithCancel(context.Background())
	s.store.Trip = func(reqs []limit.Request) {
		if reqs[0].Ops[0].AsOf != 0 {
			stop()
		}
	}
	s.clock.Add(2 * unused)
	rep.Backend.Run(ctx)
	st := rep.Stats()
	if held < keys || st.Expired != 0 || st.Returned != uint64(held) {
		t.Errorf("of %d units %d were given back and %d lost", held, st.Returned, st.Expired)
	}
}
