package prefetch

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// A spend is what was admitted, at the instant of the store's clock at which
// it was charged or, where it was paid from held units, paid.
type spend struct {
	at limit.Instant
	n  int64
}

// A story is random traffic by several replicas on one key, next to limits
// that refuse some of its requests.
type story struct {
	*testing.T
	r        *rand.Rand
	clock    *remote.Clock
	store    *remote.Store
	replicas []*rig
	op       limit.Op
	other    limit.Op
	spends   []spend
	nested   bool     // replicas take while others' trips are under way
	sent     *[]bool  // of the takes under way, the innermost last: op went to the store
	log      []string // what happened, for messages
}

func newStory(t *testing.T, r *rand.Rand, l *limit.Limit, share int64, replicas int, nested bool) *story {
	first := newRig(t, Config{})
	s := &story{T: t, r: r, clock: first.clock, store: first.store, nested: nested, sent: new([]bool),
		replicas: []*rig{first}}
	for len(s.replicas) < replicas {
		s.replicas = append(s.replicas, first.replica())
	}
	s.op, s.other = op("k", l, 1, share), op("other", newLimit(limit.TokenBucket, 5, l.Window()), 1, 0)
	first.store.Trip = func(reqs []limit.Request) {
		for _, o := range reqs[0].Ops {
			(*s.sent)[len(*s.sent)-1] = (*s.sent)[len(*s.sent)-1] || o.Key == s.op.Key
		}
		s.underWay()
	}
	first.store.Reply = func([]limit.Request) { s.underWay() }
	return s
}

// underWay is what happens while a trip is.
func (s *story) underWay() {
	if s.r.IntN(3) == 0 {
		s.clock.Add(time.Duration(s.r.Int64N(int64(s.op.Limit.Window())/20 + 1)))
	}
	for s.nested && len(*s.sent) < 4 && s.r.IntN(2) == 0 {
		s.take()
	}
}

// move lets time pass, preferably to an edge.
func (s *story) move() {
	w := s.op.Limit.Window().Microseconds()
	toEnd := w - int64(s.store.Clock())%w
	var d int64
	switch s.r.IntN(24) {
	case 0:
		d = s.r.Int64N(w)
	case 1:
		d = toEnd
	case 2:
		d = toEnd - 1
	case 3:
		d = s.r.Int64N(w / 10)
	case 4, 5, 6:
		d = s.r.Int64N(1000)
	case 7:
		if s.r.IntN(8) == 0 {
			d = 3 * w
		}
	}
	s.clock.Add(time.Duration(d) * time.Microsecond)
}

// take has some replica take something, and notes what was spent.
func (s *story) take() {
	rep := s.replicas[s.r.IntN(len(s.replicas))]
	mine := s.op
	switch s.r.IntN(8) {
	case 0:
		mine.Cost = 1 + s.r.Int64N(mine.Limit.Share()+2)
	case 1:
		mine.Cost = 0
	}
	mine.Each, mine.Shadow = s.r.IntN(6) == 0, s.r.IntN(6) == 0
	ops, at := []limit.Op{mine}, 0
	if s.r.IntN(4) == 0 {
		ops, at = []limit.Op{s.other, mine}, 1
	}
	*s.sent = append(*s.sent, false)
	paid := s.store.Clock()
	v, _ := rep.take(ops...)
	sent := (*s.sent)[len(*s.sent)-1]
	*s.sent = (*s.sent)[:len(*s.sent)-1]
	rep.held(s.op)
	out := v.Outcomes[at]
	if sent {
		paid = v.At
	}
	s.log = append(s.log, fmt.Sprintf("%d cost %d each %v shadow %v of %d ops, to the store %v: %v %+v", paid, mine.Cost,
		mine.Each, mine.Shadow, len(ops), sent, v.Admitted, out))
	if out.Remaining < 0 || out.Retry < limit.Never || out.Reset < 0 {
		s.Fatalf("%+v", v)
	}
	if out.Admitted && mine.Cost > 0 && (v.Admitted || mine.Each) {
		s.spends = append(s.spends, spend{paid, mine.Cost})
	}
	if !s.nested && !out.Admitted && mine.Cost <= s.op.Limit.Capacity() {
		s.notTooEarly(v.At, max(mine.Cost, 1))
	}
}

// allowance is how many units replicas may hold: what all bounds are about.
func (s *story) allowance() int64 { return int64(len(s.replicas)) * (s.op.Limit.Share() - 1) }

// room is what would be left at instant t if nothing were taken ahead. It is
// negative where too much was admitted.
func (s *story) room(t limit.Instant) float64 {
	l := s.op.Limit
	w := limit.Instant(l.Window().Microseconds())
	start := t - t%w
	step, steps := l.Grid()
	used, level, last := 0.0, float64(l.Capacity()), limit.Instant(0)
	for _, e := range s.spends {
		n := float64(e.n)
		switch l.Algorithm() {
		case limit.FixedWindow:
			if e.at >= start {
				used += n
			}
		case limit.SlidingLog:
			if e.at > t-w {
				used += n
			}
		case limit.SlidingWindow:
			if e.at >= start {
				used += n
			} else if e.at >= start-w {
				used += n * float64(steps-int64(t-start)/step) / float64(steps)
			}
		case limit.TokenBucket:
			level = s.refilled(level, e.at-last) - n
			last = e.at
		}
	}
	if l.Algorithm() == limit.TokenBucket {
		return s.refilled(level, t-last)
	}
	return float64(l.Capacity()) - used
}

func (s *story) refilled(level float64, d limit.Instant) float64 {
	num, den := s.op.Limit.Interval()
	return min(level+float64(d)*float64(den)/float64(num), float64(s.op.Limit.Capacity()))
}

// notTooEarly: what is refused would not have had room beside all that
// replicas can hold. Units of a token bucket that have expired are lost beside that.
func (s *story) notTooEarly(t limit.Instant, cost int64) {
	lost, rounding := int64(0), 0.0
	switch s.op.Limit.Algorithm() {
	case limit.TokenBucket:
		for _, r := range s.replicas {
			lost += int64(r.Stats().Expired)
		}
		rounding = 1e-3
	case limit.SlidingWindow:
		rounding = 1
	}
	if room := s.room(t); room-rounding >= float64(cost+s.allowance()+lost) {
		s.Errorf("cost %d was refused at %d, though there is room for %v: %d replicas, share %d, %d expired", cost, t, room,
			len(s.replicas), s.op.Limit.Share(), lost)
	}
}

// notTooMuch: no interval holds more than the algorithm allows and what
// replicas can hold at its beginning; of a fixed window, not even that.
func (s *story) notTooMuch() {
	l := s.op.Limit
	w := limit.Instant(l.Window().Microseconds())
	// Takes that overlap are noted as they end.
	slices.SortStableFunc(s.spends, func(a, b spend) int { return cmp.Compare(a.at, b.at) })
	for i, from := range s.spends {
		sum := int64(0)
		for _, to := range s.spends[i:] {
			sum += to.n
			most, d := l.Capacity(), to.at-from.at
			switch {
			case l.Algorithm() == limit.FixedWindow && from.at/w == to.at/w:
			case l.Algorithm() == limit.SlidingLog && d < w:
				most += s.allowance()
			case l.Algorithm() == limit.SlidingWindow && d < w:
				most += s.allowance() + int64(float64(l.Max())*float64(d)/float64(w))
			case l.Algorithm() == limit.TokenBucket:
				most += s.allowance() + int64(float64(d)*float64(l.Max())/float64(w)+1e-6)
			default:
				continue
			}
			if sum > most {
				s.Fatalf("%v: %d units from %d to %d, want at most %d: %d replicas, share %d", l, sum, from.at, to.at, most,
					len(s.replicas), s.op.Limit.Share())
			}
		}
	}
}

// TestDecisionsStayWithinBounds: neither is too much admitted nor refused too early, by
// more than doc.go says.
func TestDecisionsStayWithinBounds(t *testing.T) {
	for _, a := range sharable {
		for _, nested := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%v", a, nested), func(t *testing.T) {
				r := random.Rand(t, 1)
				hits, refused, rounds := uint64(0), 0, 60
				if nested { // and thus several times as many takes
					rounds = 15
				}
				for range rounds {
					most := 2 + r.Int64N(60)
					l := newLimit(a, most, time.Duration(1+r.IntN(3))*time.Second)
					s := newStory(t, r, l, 2+r.Int64N(most-1), 1+r.IntN(3), nested)
					for range 120 {
						s.move()
						s.take()
					}
					s.notTooMuch()
					for _, rep := range s.replicas {
						hits += rep.Stats().Hits
					}
					refused += 120 - len(s.spends)
					if t.Failed() {
						for _, line := range s.log {
							t.Log(line)
						}
						return
					}
				}
				if hits < 300 || !nested && refused < 300 {
					t.Errorf("the test hardly met what it is about: %d paid here, %d not admitted", hits, refused)
				}
			})
		}
	}
}

// TestLoneReplicaAnswersAsTheStore: with single units, a replica that is alone answers as the
// store would, in every field, on a fixed window; and over a full window
// exactly the limit is admitted.
func TestLoneReplicaAnswersAsTheStore(t *testing.T) {
	r := random.Rand(t, 1)
	for range 100 {
		most := 2 + r.Int64N(100)
		s := newStory(t, r, newLimit(limit.FixedWindow, most, time.Second), 2+r.Int64N(most-1), 1, false)
		rep, model := s.replicas[0], memory.New(memory.Config{})
		rep.store.Trip, rep.store.Reply = nil, nil
		perWindow, refused := map[limit.Instant]int64{}, map[limit.Instant]bool{}
		for range 500 {
			s.move()
			o := s.op
			if r.IntN(5) == 0 {
				o.Cost = 0
			}
			want := make([]limit.Verdict, 1)
			model.Take(context.Background(), []limit.Request{{At: rep.store.Clock(), Ops: []limit.Op{o}}}, want)
			got, _ := rep.take(o)
			if got.At != want[0].At || got.Admitted != want[0].Admitted || outcome(got) != outcome(want[0]) {
				t.Fatalf("share %d: %+v\nwant %+v", o.Limit.Share(), got, want[0])
			}
			window := got.At / 1e6
			refused[window] = refused[window] || !got.Admitted
			if got.Admitted {
				perWindow[window] += o.Cost
			}
		}
		for window, n := range perWindow {
			if n > most || refused[window] && n != most {
				t.Errorf("%d of %d were admitted in a window", n, most)
			}
		}
	}
}

// TestManyAtOnce: replicas with many callers each admit no more than the limit,
// and leave no more than they can hold.
func TestManyAtOnce(t *testing.T) {
	const replicas, callers, takes, most, share = 3, 8, 90, 1000, 50
	for _, a := range sharable {
		t.Run(a.String(), func(t *testing.T) {
			s := newStore(time.Now)
			l := newLimit(a, most, limit.MaxWindow/2)
			o, none := op("k", l, 1, share), op("none", newLimit(a, 1, limit.MaxWindow/2), 2, 0)
			var rigs []*rig
			for range replicas {
				rigs = append(rigs, &rig{T: t, Backend: New(s, s.Caps(), Config{}, time.Now), store: s})
			}
			s.Trip = func([]limit.Request) { // in the middle of all
				for _, r := range rigs {
					r.held(o)
				}
			}
			var admitted atomic.Int64
			var all sync.WaitGroup
			for i := range replicas * callers {
				all.Go(func() {
					out := make([]limit.Verdict, 3)
					for range takes / 3 {
						reqs := []limit.Request{{Ops: []limit.Op{o}}, {Ops: []limit.Op{o, none}}, {Ops: []limit.Op{each(o), none}}}
						rigs[i%replicas].Take(context.Background(), reqs, out)
						for j := range out {
							if out[j].Err != nil {
								t.Error(out[j].Err)
							} else if out[j].Outcomes[0].Admitted && j != 1 {
								admitted.Add(1)
							}
						}
					}
				})
			}
			all.Wait()
			held := int64(0)
			for _, r := range rigs {
				held += r.held(o)
			}
			n := admitted.Load()
			left := rigs[0].inStore(o)
			if n > most || n+held+left != most || left > 0 || held > replicas*(share-1) {
				t.Errorf("%d admitted, %d held, %d left in the store; the limit is %d", n, held, left, most)
			}
			t.Logf("%d admitted, %d held, %d trips for %d requests", n, held, s.Calls.Load(), replicas*callers*takes)
		})
	}
}
