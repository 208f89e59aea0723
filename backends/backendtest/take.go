package backendtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// checkModel compares every verdict on random slices with limit.Decide's.
func checkModel(e *env) {
	e.open()
	for range e.s.Rounds {
		e.compare(e.generator(), 6)
	}
}

// A comparer makes random requests, and knows the right answers.
type comparer interface {
	slice(n int) ([]limit.Request, []limit.Verdict)
	differ(req *limit.Request, got, want *limit.Verdict) string
	past(req *limit.Request) string
	end(e *env) // of a slice
}

// compare sends up to most slices of g's requests, and compares the verdicts with its answers.
func (e *env) compare(g comparer, most int) {
	e.Helper()
	for range 1 + e.r.IntN(most) {
		n := 1
		if e.r.IntN(4) > 0 {
			n += e.r.IntN(40)
		}
		reqs, want := g.slice(n)
		got := e.takeAll(reqs)
		e.settle()
		for i := range reqs {
			if d := g.differ(&reqs[i], &got[i], &want[i]); d != "" {
				e.Fatalf("request %d of %d in a slice: %s\n%s%s", i, n, d, describe(&reqs[i]), g.past(&reqs[i]))
			}
		}
		g.end(e)
	}
}

func (g *generator) past(req *limit.Request) string { return g.m.past(req) }

func (g *generator) end(*env) {}

// checkSliceEqualsSingles holds Take to its law: a slice is decided as if its
// requests had come one by one.
func checkSliceEqualsSingles(e *env) {
	e.open()
	for range (e.s.Rounds + 4) / 5 {
		reqs, _ := e.generator().slice(2 + e.r.IntN(39)) // each within a group, if it matters
		whole := e.takeAll(reqs)
		again := e.onOtherKeys(reqs)
		for i := 0; i < len(again); {
			n := min(1+e.r.IntN(3), len(again)-i)
			for j, v := range e.takeAll(again[i : i+n]) {
				if d := differ(&whole[i+j], &v); d != "" {
					e.Fatalf("request %d in one slice of %d, compared with slices of %d: %s\n%s",
						i+j, len(reqs), n, d, describe(&reqs[i+j]))
				}
			}
			i += n
		}
	}
}

// onOtherKeys returns the same requests on keys of their own.
func (e *env) onOtherKeys(reqs []limit.Request) []limit.Request {
	again := make([]limit.Request, len(reqs))
	for i := range reqs {
		again[i] = limit.Request{At: reqs[i].At, Ops: slices.Clone(reqs[i].Ops)}
		for j := range again[i].Ops {
			k := &again[i].Ops[j].Key
			k.Group = e.prefix + "other" + strings.TrimPrefix(k.Group, e.prefix)
		}
	}
	return again
}

// checkOrderOfOps: the verdict does not depend on the order of a request's
// ops, as long as no two share a key.
func checkOrderOfOps(e *env) {
	e.open()
	for range (e.s.Rounds + 4) / 5 {
		g := e.generator()
		g.distinct = true
		for range 10 {
			reqs, _ := g.slice(1)
			other := e.onOtherKeys(reqs)[0].Ops
			perm := e.r.Perm(len(other))
			again := limit.Request{At: reqs[0].At}
			for _, from := range perm {
				again.Ops = append(again.Ops, other[from])
			}
			got, want := e.take(again), e.take(reqs[0])
			e.settle()
			g.blur(&again, &got)
			g.blur(&reqs[0], &want)
			for to, from := range perm {
				if got.Admitted != want.Admitted || got.Outcomes[to] != want.Outcomes[from] {
					e.Fatalf("in the order %v: %v %+v, else %v %+v\n%s", perm,
						got.Admitted, got.Outcomes[to], want.Admitted, want.Outcomes[from], describe(&reqs[0]))
				}
			}
		}
	}
}

// checkRefusedChangesNothing: a refused request leaves the keys it had room
// on as they were, whatever order its ops are in.
func checkRefusedChangesNothing(e *env) {
	e.open()
	now := e.start()
	for _, a := range e.algorithms() {
		for _, full := range e.algorithms() {
			for _, group := range []string{"", "elsewhere"} {
				e.refuse(now, a, full, group)
			}
		}
	}
}

func (e *env) refuse(now limit.Instant, a, full limit.Algorithm, group string) {
	roomy, no := e.limit(a, 5, 24*ahead), e.limit(full, 1, 24*ahead)
	k1, k2 := e.key(group+full.String(), "roomy", a), e.key(a.String()+group, "full", full)
	if group == "" { // the two keys share a group
		k1.Group = e.prefix + a.String() + full.String()
		k2.Group = k1.Group
	}
	e.takeOne(now, k2, no, 1)
	before := e.takeOne(now, k1, roomy, 2)
	for _, swap := range []bool{false, true} {
		ops := []limit.Op{{Key: k1, Limit: roomy, Cost: 2}, {Key: k2, Limit: no, Cost: 1}}
		if swap {
			slices.Reverse(ops)
		}
		if v := e.take(limit.Request{At: now, Ops: ops}); v.Admitted {
			e.Fatalf("%v with a full %v: admitted", a, full)
		}
		e.settle()
		if after := e.takeOne(now, k1, roomy, 0); after.Remaining != before.Remaining || after.Reset != before.Reset {
			e.Fatalf("%v with a full %v: a refused request left %+v, was %+v", a, full, after, before)
		}
	}
}

// checkVerdictMemory: whatever is in out before, and its memory, is used up.
func checkVerdictMemory(e *env) {
	e.open()
	now := e.start()
	a := e.algorithms()[0]
	l := e.limit(a, 10, ahead)
	reqs := []limit.Request{request(now, e.key("", "1", a), l, 1), request(now, e.key("", "2", a), l, 1)}
	old := make([]limit.Outcome, 7)
	for i := range old {
		old[i] = limit.Outcome{Admitted: true, Remaining: -5, Retry: -5, Reset: -5}
	}
	out := []limit.Verdict{
		{Err: backends.ErrCorrupt, Outcomes: old, Admitted: true, At: 9},
		{},
	}
	ctx, cancel := calm()
	defer cancel()
	e.b.Take(ctx, reqs, out)
	for i := range out {
		want := newModel().take(&reqs[i], now)
		if d := differ(&out[i], &want); d != "" {
			e.Errorf("verdict %d: %s", i, d)
		}
	}
	if len(out[0].Outcomes) > 0 && &out[0].Outcomes[0] != &old[0] {
		e.Error("the memory of out was not used again")
	}
	e.b.Take(ctx, nil, nil) // no requests: nothing happens
}

// checkRequestUntouched: reqs belong to the caller, who may use them again.
func checkRequestUntouched(e *env) {
	e.open()
	reqs, _ := e.generator().slice(40)
	var before []limit.Request
	for i := range reqs {
		before = append(before, limit.Request{At: reqs[i].At, Ops: slices.Clone(reqs[i].Ops)})
	}
	e.takeAll(reqs)
	for i := range reqs {
		if reqs[i].At != before[i].At || !slices.Equal(reqs[i].Ops, before[i].Ops) {
			e.Fatalf("request %d was changed to\n%s\nfrom\n%s", i, describe(&reqs[i]), describe(&before[i]))
		}
	}
}

// checkExtremes asks with the largest figures that Caps allows.
func checkExtremes(e *env) {
	e.open()
	m, now := newModel(), e.start()
	for _, a := range e.algorithms() {
		most := e.s.Caps.Algorithms[a].MaxUnits
		spec := limit.Spec{Algorithm: a, Max: most, Window: limit.MaxWindow.Truncate(e.precision())}
		if a.Is(limit.Refilled) {
			spec.Max = 1
			spec.Burst = 10
		}
		l, err := limit.New(spec)
		if err != nil {
			e.Fatal(err)
		}
		k := e.key("", "extreme", a)
		for i, cost := range []int64{l.Capacity() - 1, 2, 1, 1, 0, -1, 1, -l.Capacity(), 1} {
			req := request(now+limit.Instant(int64(i)*e.step), k, l, cost)
			want, got := m.take(&req, req.At), e.take(req)
			if d := differ(&got, &want); d != "" {
				e.Fatalf("%v, cost %d: %s%s", l, cost, d, m.past(&req))
			}
		}
	}
}

// checkChangedLimits asks under one key by a limit, and then by one whose figures are lower or higher: also by a bucket
// whose rate stays, and which holds less than it has.
func checkChangedLimits(e *env) {
	e.open()
	m, now := newModel(), e.start()
	for _, a := range e.algorithms() {
		var limits []*limit.Limit
		for _, figures := range [][2]int64{{10, 0}, {3, 0}, {20, 0}, {10, 100}, {10, 5}} {
			spec := limit.Spec{Algorithm: a, Max: figures[0], Burst: figures[1], Window: time.Hour}
			if spec.Burst != 0 && !a.Is(limit.Refilled) {
				continue
			}
			l, err := limit.New(spec)
			if err != nil {
				e.Fatal(err)
			}
			limits = append(limits, l)
		}
		for i, first := range limits {
			for j, second := range limits {
				k := e.key("", fmt.Sprintf("changed %d %d", i, j), a)
				for _, op := range []struct {
					by   *limit.Limit
					cost int64
				}{{first, 2}, {second, 0}, {second, 1}, {first, -1}, {first, 1}} {
					req := request(now, k, op.by, op.cost)
					want, got := m.take(&req, req.At), e.take(req)
					if d := differ(&got, &want); d != "" {
						e.Fatalf("%v, then %v, cost %d: %s%s", first, op.by, op.cost, d, m.past(&req))
					}
				}
			}
		}
	}
}
