package slotstest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/seed"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// alone plays a random sequence of searches of one caller and compares each
// answer with the naive rule's.
func alone(seed uint64, sub subject, year int) (wrong []string) {
	sc := newScenario(seed, sub)
	sc.m.Inject(Faults{}, 0)
	sc.starts = nil
	base := plan.WindowStart(time.Date(year, 12, 31, 23, 59, 0, 0, time.UTC).UnixMicro(), sc.series.SizeMs)
	for range 4 {
		sc.starts = append(sc.starts, base+sc.rng.Int64N(12)*sc.series.SizeMs)
	}
	sc.events = 60
	n := newNaive()
	p := sc.newPlayer()
	ctx := context.Background()
	for range 30 {
		if sc.rng.IntN(12) == 0 {
			p.max = 1 + sc.rng.Int64N(5)
			p.low = map[int64]int64{} // what was full may not be
		}
		s := p.newSearch()
		p.hint(s)
		frontier, ok, err := sc.m.Frontier(ctx, s.Series, s.GridMs())
		if err != nil {
			return []string{err.Error()}
		}
		switch {
		case s.FrontierMs != 0:
			frontier = s.FrontierMs
		case !ok:
			frontier = s.GridMs()
		}
		want := n.assign(s, s.LimitMs(frontier))
		found, err := p.engine.Assign(ctx, s)
		if err != nil {
			return []string{err.Error()}
		}
		p.learn(s, found)
		wrong = append(wrong, compareAnswers(want, found)...)
	}
	return append(wrong, sc.m.Misuse()...)
}

func TestAloneGetsTheEarliestWindow(t *testing.T) {
	for seed := range seed.Many(t, seeds()/3) {
		if wrong := alone(seed, theEngine(), 2026); len(wrong) > 0 {
			t.Fatalf("seed %d: %d problems, such as: %s", seed, len(wrong), wrong[0])
		}
	}
}

// Windows have negative starts before 1970.
func TestAloneBefore1970(t *testing.T) {
	for _, year := range []int{1925, 1969} {
		for seed := range seed.Many(t, seeds()/20) {
			if wrong := alone(seed, theEngine(), year); len(wrong) > 0 {
				t.Fatalf("year %d, seed %d: %d problems, such as: %s", year, seed, len(wrong), wrong[0])
			}
		}
	}
}

// fill has the windows count max each.
func fill(m *Model, s slots.Series, fromMs int64, n int, max int64) {
	for i := range n {
		m.SetCount(slots.WindowKey{Series: s, StartMs: fromMs + int64(i)*s.SizeMs}, max)
	}
}

func searchFor(s slots.Series, at time.Time, max int64, events ...string) *slots.Search {
	us := at.UnixMicro()
	first := plan.WindowStart(us, s.SizeMs)
	q := &slots.Search{
		Series: s, ConfigID: "c", Max: max, FirstMs: first, BaseMs: first + s.SizeMs, FromMs: first + s.SizeMs,
		EndMs: first + 1e6*s.SizeMs, Chunk: 100, Chunks: 2,
	}
	for _, e := range events {
		elapsed := plan.Elapsed(us, s.SizeMs)
		q.Asks = append(q.Asks, slots.Ask{
			EventID: e, SlotID: "slot-" + e, RequestedUs: us, ElapsedMs: elapsed,
			FirstMax: plan.FirstCapacity(max, elapsed, s.SizeMs), Bits: rand.Uint32() >> 1,
		})
	}
	return q
}

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// TestExhaustion: with the first window and the next 300 full the search is
// exhausted after 200 further rows, and the next one finds window 302, where the
// first is window 1 (S0-75, S0-108, A0-14).
func TestExhaustion(t *testing.T) {
	ctx, m := context.Background(), NewModel()
	s := slots.Series{Scope: "s", SizeMs: 4000}
	fill(m, s, noon.UnixMilli(), 301, 100)
	e := slots.TxEngine(m)
	found, err := e.Assign(ctx, searchFor(s, noon, 100, "a"))
	if err != nil || !found.Exhausted || found.Answers[0].Status != slots.Unplaced {
		t.Fatalf("first try: %+v, %v; want it to be exhausted", found, err)
	}
	found, err = e.Assign(ctx, searchFor(s, noon, 100, "a"))
	want := noon.UnixMilli() + 301*4000
	if err != nil || found.Answers[0].Status != slots.New || found.Answers[0].Slot.WindowMs != want {
		t.Fatalf("second try: %+v, %v; want window %d", found, err, want)
	}
}

// TestF1: the candidate fills, or is locked, between the scout and the lock;
// what is free behind it must not be stepped over.
func TestF1(t *testing.T) {
	s := slots.Series{Scope: "s", SizeMs: 4000}
	for name, meddle := range map[string]func(m *Model) (release func()){
		"filled": func(m *Model) func() {
			m.SetCount(slots.WindowKey{Series: s, StartMs: noon.UnixMilli() + 4000}, 2)
			return func() {}
		},
		"held, and released when it was full": func(m *Model) func() {
			tx, err := m.Begin(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if _, ok, err := tx.Lock(context.Background(), s, noon.UnixMilli()+4000, 2); !ok || err != nil {
				t.Fatal(ok, err)
			}
			return func() {
				tx.Rollback()
				m.SetCount(slots.WindowKey{Series: s, StartMs: noon.UnixMilli() + 4000}, 2)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, m := context.Background(), NewModel()
			fill(m, s, noon.UnixMilli(), 1, 2)
			fill(m, s, noon.UnixMilli()+4000, 200, 0)
			scouts := 0
			release := func() {}
			store := Watch(m, Watcher{After: func(op string, err error) error {
				switch {
				case op == "scout" && scouts == 0:
					scouts++
					release = meddle(m)
				case op == "lock" && scouts == 1:
					scouts++
					release()
				}
				return err
			}})
			found, err := slots.TxEngine(store).Assign(ctx, searchFor(s, noon, 2, "a"))
			want := noon.UnixMilli() + 2*4000
			if err != nil || found.Answers[0].Slot.WindowMs != want {
				t.Fatalf("%+v, %v; want window %d", found, err, want)
			}
		})
	}
}

// TestBudgets: how many statements a search takes (S0-105 to S0-108).
func TestBudgets(t *testing.T) {
	ctx, s := context.Background(), slots.Series{Scope: "s", SizeMs: 4000}
	m := NewModel()
	store, counter := Count(m)
	e := slots.TxEngine(store)
	assign := func(q *slots.Search, what string, want map[string]int) {
		t.Helper()
		counter.Take()
		if _, err := e.Assign(ctx, q); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		checkBudget(t, what, counter.Take(), want)
	}
	known := searchFor(s, noon, 1, "b")
	known.FirstKnown = true
	assign(searchFor(s, noon, 1, "a"), "first window", map[string]int{"find": 1, "provision": 1, "begin": 1, "lock": 1, "claim": 1, "commit": 1})
	assign(searchFor(s, noon, 1, "a"), "idempotent hit", map[string]int{"find": 1})
	assign(known, "first window full, first to provision", map[string]int{"find": 1, "peek": 1, "frontier": 1, "provision": 1,
		"scout": 1, "begin": 2, "lock": 2, "claim": 1, "commit": 1})
	known = searchFor(s, noon, 1, "c")
	known.FirstKnown = true
	assign(known, "in the provisioned range", map[string]int{"find": 1, "peek": 1, "frontier": 1, "scout": 1, "begin": 2, "lock": 2, "claim": 1, "commit": 1})
	direct := searchFor(s, noon, 1, "d")
	direct.FirstMs, direct.Asks[0].FirstMax, direct.FromMs, direct.Direct, direct.FrontierMs = noon.UnixMilli(), 0, direct.BaseMs+2*4000, true, direct.BaseMs+50*4000
	assign(direct, "where the hint says", map[string]int{"find": 1, "begin": 1, "lock": 1, "claim": 1, "commit": 1})
	fill(m, s, noon.UnixMilli(), 301, 1)
	far := searchFor(slots.Series{Scope: "far", SizeMs: 4000}, noon, 1, "e")
	fill(m, far.Series, noon.UnixMilli(), 401, 1)
	// The chunks lie on a grid of their own: the reach of 300 windows may touch four.
	assign(far, "exhaustion", map[string]int{"find": 1, "provision": 5, "peek": 1, "frontier": 1, "scout": 4, "begin": 1, "lock": 1})
}
