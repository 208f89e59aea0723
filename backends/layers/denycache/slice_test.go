package denycache

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/limit"
)

// Of a slice, only what is not known goes down, in order and in one call, with
// the memory of its verdicts; and a request finds what those before it gave back.
func TestSliceSendsOnlyUnknownRequests(t *testing.T) {
	r := newRig(t, time.Second)
	l := newLimit(limit.SlidingLog, 1, time.Hour)
	known, back := op("known", l, 1), op("back", l, 1)
	r.exhaust(known)
	r.exhaust(back)
	giveBack := back
	giveBack.Cost = -1
	reqs := []limit.Request{
		{Ops: []limit.Op{known}}, {Ops: []limit.Op{back}},
		{Ops: []limit.Op{op("new", l, 1)}}, {Ops: []limit.Op{giveBack}}, {Ops: []limit.Op{known}},
		{Ops: []limit.Op{back}}, {Ops: []limit.Op{back}}, {Ops: []limit.Op{known, back}},
	}
	admitted := []bool{false, false, true, true, false, true, false, false}
	down := []int{2, 3, 5, 6}
	out := make([]limit.Verdict, len(reqs))
	memory := make([][]limit.Outcome, len(reqs))
	for i := range out {
		memory[i] = make([]limit.Outcome, 1, 2)
		out[i] = limit.Verdict{Outcomes: memory[i], Admitted: true, Err: context.Canceled}
	}
	r.store.Keep = true
	before := r.store.Calls.Load()
	r.Take(context.Background(), reqs, out)
	if n := r.store.Calls.Load() - before; n != 1 {
		t.Errorf("%d calls", n)
	}
	kept := r.store.Kept()
	if len(kept) != len(down) {
		t.Fatalf("%d requests went down, want %d", len(kept), len(down))
	}
	for j, i := range down {
		if kept[j].Ops[0] != reqs[i].Ops[0] {
			t.Errorf("place %d: %+v, want request %d", j, kept[j], i)
		}
	}
	for i := range out {
		switch v := &out[i]; {
		case v.Err != nil || v.Admitted != admitted[i] || len(v.Outcomes) != len(reqs[i].Ops) || v.At == 0:
			t.Errorf("request %d: %+v", i, v)
		case &v.Outcomes[0] != &memory[i][0]:
			t.Errorf("request %d: the memory of its verdict was not used", i)
		}
	}
	if n := r.stats().hits; n != 4 {
		t.Errorf("%d hits", n)
	}
	r.Take(context.Background(), nil, nil)
}

// Neither a hit nor a miss allocates.
func TestHitsAndMissesDoNotAllocate(t *testing.T) {
	if raceEnabled() {
		t.Skip("the race detector has pools lose things")
	}
	c := remote.NewClock()
	s := admitting(c.Now, 1)
	b := New(s, s.Caps(), c.Now)
	ask := benchRequests(64, 3)
	out := make([]limit.Verdict, 64)
	if n := testing.AllocsPerRun(100, func() { b.Take(context.Background(), ask, out) }); n != 0 {
		t.Errorf("a slice of misses: %v allocations", n)
	}
	refused := refusing(c.Now)
	b = New(refused, s.Caps(), c.Now)
	if n := testing.AllocsPerRun(100, func() { b.Take(context.Background(), ask, out) }); n != 0 {
		t.Errorf("a slice of hits: %v allocations", n)
	}
	if b.stats().hits < 6000 {
		t.Errorf("only %d hits", b.stats().hits)
	}
}
