package slotstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/random"
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
			p.full = nil // what was full may not be
		}
		s := p.newSearch()
		p.hint(s)
		want := n.assign(s, s.EndMs)
		found, err := p.engine.Assign(ctx, s)
		if err != nil {
			return []string{err.Error()}
		}
		p.learn(found)
		wrong = append(wrong, compareAnswers(want, found)...)
		if found.Contended > 0 { // it costs a transaction, and changes no answer
			wrong = append(wrong, fmt.Sprintf("%d windows were scouted and then found full, although there is no other caller",
				found.Contended))
		}
	}
	return append(wrong, sc.m.Misuse()...)
}

func TestAloneGetsTheEarliestWindow(t *testing.T) {
	for seed := range random.Seeds(t, seeds()/3) {
		if wrong := alone(seed, theEngine(), 2026); len(wrong) > 0 {
			t.Fatalf("seed %d: %d problems, such as: %s", seed, len(wrong), wrong[0])
		}
	}
}

// Windows have negative starts before 1970.
func TestAloneBefore1970(t *testing.T) {
	for _, year := range []int{1925, 1969} {
		for seed := range random.Seeds(t, seeds()/20) {
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
		Series: s, ConfigID: "c", Max: max, FirstMs: first, FromMs: first + s.SizeMs,
		EndMs: first + 1e6*s.SizeMs,
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

// TestNoReach: a search finds room behind however many full windows.
func TestNoReach(t *testing.T) {
	ctx, m := context.Background(), NewModel()
	s := slots.Series{Scope: "s", SizeMs: 4000}
	fill(m, s, noon.UnixMilli(), 3001, 100)
	found, err := slots.TxEngine(m).Assign(ctx, searchFor(s, noon, 100, "a"))
	want := noon.UnixMilli() + 3001*4000
	if err != nil || found.Answers[0].Status != slots.New || found.Answers[0].Slot.WindowMs != want {
		t.Fatalf("%+v, %v; want window %d", found, err, want)
	}
}

// TestSearchStepsOverNothingFree: the candidate fills, or is locked, between the scout and
// the lock; what is free behind it must not be stepped over.
func TestSearchStepsOverNothingFree(t *testing.T) {
	s := slots.Series{Scope: "s", SizeMs: 4000}
	for _, name := range []string{"filled", "held for too long"} {
		t.Run(name, func(t *testing.T) {
			ctx, m := context.Background(), NewModel()
			fill(m, s, noon.UnixMilli(), 1, 2)
			fill(m, s, noon.UnixMilli()+4000, 200, 0)
			scouts := 0
			store := Watch(m, Watcher{Before: func(_ context.Context, op string) error {
				if op == "place" && scouts == 1 && name != "filled" {
					scouts++
					return &slots.StoreError{Kind: slots.Held, Op: op, Err: errHeld}
				}
				return nil
			}, After: func(op string, err error) error {
				switch {
				case op == "scout" && scouts == 0:
					scouts++
					if name == "filled" {
						m.SetCount(slots.WindowKey{Series: s, StartMs: noon.UnixMilli() + 4000}, 2)
					}
				case op == "lock" && scouts == 1:
					scouts++
					if name != "filled" {
						return &slots.StoreError{Kind: slots.Held, Op: "lock", Err: errHeld}
					}
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

// TestSearchKeepsItsStatementBudget: how many statements a search takes.
func TestSearchKeepsItsStatementBudget(t *testing.T) {
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
	assign(searchFor(s, noon, 1, "a"), "first window", map[string]int{"find": 1, "place": 1, "begin": 1, "lock": 1,
		"claim": 1, "commit": 1})
	assign(searchFor(s, noon, 1, "a"), "idempotent hit", map[string]int{"find": 1})
	assign(searchFor(s, noon, 1, "b"), "first window full", map[string]int{"find": 1, "peek": 1, "scout": 1, "place": 2,
		"begin": 2, "lock": 2, "claim": 1, "commit": 1})
	direct := searchFor(s, noon, 1, "d")
	direct.Asks[0].FirstMax, direct.FromMs, direct.Direct = 0, direct.FromMs+2*4000, true
	assign(direct, "where the hint says", map[string]int{"find": 1, "place": 1, "begin": 1, "lock": 1, "claim": 1,
		"commit": 1})
	far := searchFor(slots.Series{Scope: "far", SizeMs: 4000}, noon, 1, "e")
	fill(m, far.Series, noon.UnixMilli(), 401, 1)
	assign(far, "behind 401 full windows", map[string]int{"find": 1, "peek": 1, "scout": 1, "place": 2, "begin": 2,
		"lock": 2, "claim": 1, "commit": 1})
}
