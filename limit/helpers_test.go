package limit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

const (
	us   = time.Microsecond
	day  = 24 * time.Hour
	year = 365 * day
)

// seeded returns random numbers; a failing test prints how to repeat it.
func seeded(t testing.TB) *rand.Rand { return random.Rand(t, 0) }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// clone copies s so that what is tried on the copy cannot reach s.
func clone(s State) State {
	s.Log = slices.Clip(slices.Clone(s.Log))
	return s
}

func equal(a, b State) bool {
	return a.At == b.At && a.N == b.N && a.M == b.M && slices.Equal(a.Log, b.Log)
}

// try steps a copy of s, so that s stays as it is.
func try(s State, l *Limit, cost int64, now Instant) (State, Outcome) {
	return Step(clone(s), &Op{Limit: l, Cost: cost}, now)
}

// zone loads a time zone.
func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// micro returns d in microseconds.
func micro(d time.Duration) Instant { return Instant(d.Microseconds()) }

// lawLimits returns the limits that every law is tried on: ordinary ones, odd
// ones and the ends of every range.
func lawLimits(t testing.TB) []*Limit {
	t.Helper()
	var all []*Limit
	add := func(s Spec) {
		t.Helper()
		l, err := New(s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		all = append(all, l)
	}
	for _, a := range Algorithms() {
		if a.Is(Refilled) { // below
			continue
		}
		for _, window := range []time.Duration{MinWindow, 7 * time.Millisecond, time.Second, 1234567 * us,
			time.Hour, MaxWindow} {
			for _, most := range []int64{0, 1, 2, 3, 10, 4711} {
				add(Spec{Algorithm: a, Max: most, Window: window})
			}
		}
		add(Spec{Algorithm: a, Max: a.MaxUnits(), Window: MinWindow})
		add(Spec{Algorithm: a, Max: a.MaxUnits(), Window: MaxWindow})
	}
	for i, window := range []time.Duration{day, 7 * day, 30 * day, year} {
		for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
			s := Spec{Algorithm: FixedWindow, Max: []int64{0, 1, 10, 4711}[i], Window: window, Calendar: true,
				Zone: zone(t, name)}
			add(s)
			s.Overflow = Saturate
			add(s)
		}
	}
	for _, a := range Algorithms() {
		for _, window := range []time.Duration{7 * time.Millisecond, time.Second, time.Hour} {
			for _, most := range []int64{0, 1, 3, 10, 4711} {
				s := Spec{Algorithm: a, Max: max(most, 1), Window: window, Overflow: Saturate}
				add(s)
				s.Overflow = Debt
				add(s)
				s.MaxDebt = max(most/2, 1)
				add(s)
				s.MaxDebt = 7*most + 1
				add(s)
			}
		}
	}
	for _, s := range []Spec{
		{Max: MaxRate, Window: time.Second, Burst: 25, Overflow: Debt},
		{Max: 999983, Window: day, Burst: 17, Overflow: Debt, MaxDebt: 40},
		{Max: 1, Window: year, Burst: 3, Overflow: Debt},
		{Max: 999983, Window: year, Burst: 1_000_003, Overflow: Debt},
		{Max: 1, Window: time.Second},
		{Max: 10, Window: time.Second},
		{Max: 10, Window: time.Second, Burst: 1},
		{Max: 10, Window: time.Second, Burst: 1000},
		{Max: 7, Window: 3 * time.Second},
		{Max: 3, Window: time.Second, Burst: 2},
		{Max: 3, Window: MinWindow, Burst: 5},
		{Max: 999983, Window: day, Burst: 17},
		{Max: 1, Window: year, Burst: 3},
		{Max: 1, Window: MaxWindow},
		{Max: MaxRate, Window: time.Second, Burst: 1},
		{Max: MaxRate, Window: time.Second, Burst: 25},
		{Max: MaxRate, Window: time.Second, Burst: MaxUnits},
		{Max: 10_000, Window: MinWindow},
		{Max: 999983, Window: MaxWindow, Burst: 1_000_003}, // interval is rounded
		{Max: MaxUnits, Window: MaxWindow, Burst: 4_000_003},
	} {
		s.Algorithm = TokenBucket
		add(s)
	}
	return all
}

// A walk is a random life of one key. Its steps and costs sit on the edges
// where decisions change.
type walk struct {
	r       *rand.Rand
	l       *Limit
	s       State
	now     Instant
	retry   time.Duration // the last one that was a wait
	refunds bool
	back    bool // the clock may step backwards
}

func newWalk(r *rand.Rand, l *Limit) *walk {
	return &walk{r: r, l: l, now: Instant(r.Int64N(int64(MaxInstant / 4))), refunds: true, back: true}
}

// move sets the instant of the next op.
func (w *walk) move() {
	window := micro(w.l.Window())
	next := w.now
	switch w.r.IntN(16) {
	case 0, 1: // the same instant
	case 2:
		next++
	case 3:
		next += window - 1
	case 4:
		next += window
	case 5:
		next += window + 1
	case 6, 7:
		next += micro(w.retry)
	case 8:
		next += max(micro(w.retry)-1, 0)
	case 9, 10:
		_, end := newNaive(w.l).bounds(int64(next)) // the start of the next window
		next = Instant(end) - Instant(w.r.IntN(2))
	case 11:
		next += Instant(w.r.Int64N(3 * int64(window)))
	case 12:
		if w.back {
			next -= pick(w.r, Instant(w.r.Int64N(2*int64(window))), 10*window, micro(year))
		}
	default:
		next += Instant(w.r.Int64N(int64(window)/4 + 1))
	}
	if next < 0 || next > MaxInstant/2 {
		next = Instant(w.r.Int64N(int64(window)))
		w.s = State{}
	}
	w.now = next
}

// cost draws what the next op wants.
func (w *walk) cost() int64 {
	most := w.l.Capacity()
	switch w.r.IntN(14) {
	case 0, 1, 2, 3:
		return 1
	case 4:
		return 0
	case 5:
		return 2
	case 6, 7, 8:
		_, out := try(w.s, w.l, 0, w.now)
		return out.Remaining + w.r.Int64N(2)
	case 9:
		return most + w.r.Int64N(3) - 1
	case 10, 11:
		return 1 + w.r.Int64N(most/2+1)
	case 12:
		return 1 + w.r.Int64N(most+1)
	}
	if !w.refunds {
		return 1
	}
	return -1 - w.r.Int64N(most+2)
}

// record does one op for good.
func (w *walk) record(cost int64) Outcome {
	var out Outcome
	w.s, out = Step(w.s, &Op{Limit: w.l, Cost: cost}, w.now)
	if out.Retry > 0 {
		w.retry = out.Retry
	}
	return out
}

// walks runs check on n random ops per limit.
func walks(t *testing.T, n int, check func(t *testing.T, w *walk, cost int64)) {
	r := seeded(t)
	for _, l := range lawLimits(t) {
		w := newWalk(r, l)
		for range n {
			w.move()
			cost := w.cost()
			check(t, w, cost)
			if t.Failed() {
				t.Fatalf("%v, cost %d at %d, state %+v", l, cost, w.now, w.s)
			}
			w.record(cost)
			if len(w.s.Log) > 200 {
				w.s = State{} // keeps copies cheap
			}
		}
	}
}
