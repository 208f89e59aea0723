package backendtest

import (
	"context"
	"slices"
	"testing"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A partitioned store decides each group of a request for itself. What a refused
// request took it gives back later: before the next Take, so that it needs no
// goroutine.
type partitioned struct {
	*reference
	late    []limit.Request // still to be given back
	careful bool            // has memory of its own for them
}

func partitionedCaps() backends.Caps {
	c := referenceCaps()
	c.Atomicity = backends.PerPartition
	return c
}

func (b *partitioned) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	b.settle()
	for i := range reqs {
		b.take(ctx, &reqs[i], &out[i])
	}
}

func (b *partitioned) take(ctx context.Context, req *limit.Request, v *limit.Verdict) {
	one := make([]limit.Verdict, 1)
	b.reference.Take(ctx, []limit.Request{*req}, one)
	*v = one[0]
	if v.Err != nil || v.Admitted || !severalGroups(req) {
		return
	}
	for i := range req.Ops {
		if v.Outcomes[i].Admitted {
			b.charge(req, i, req.Ops[i].Cost)
		}
	}
	kept := limit.Request{At: req.At, Ops: req.Ops}
	if b.careful {
		kept.Ops = slices.Clone(kept.Ops)
	}
	b.late = append(b.late, kept)
}

// settle gives back what there is.
func (b *partitioned) settle() {
	for i := range b.late {
		for j := range b.late[i].Ops {
			b.charge(&b.late[i], j, -b.late[i].Ops[j].Cost)
		}
	}
	b.late = nil
}

// charge does op i of req by itself. An op without a limit is a caller's memory
// that was used again, where a real driver would go on with whatever it finds.
func (b *partitioned) charge(req *limit.Request, i int, cost int64) {
	op := req.Ops[i]
	if op.Limit == nil || op.Limit.Capacity() < 1000 {
		return // the one that refuses has taken nothing
	}
	op.Cost = cost
	b.states[op.Key], _ = limit.Step(b.states[op.Key], &op, req.At)
}

// TestHurryReadsNoMemoryOfCallers: the suite notices a store that reads requests
// after Take has returned, and nothing wrong with one that does not.
func TestHurryReadsNoMemoryOfCallers(t *testing.T) {
	at := slices.IndexFunc(checks, func(c check) bool { return c.name == "Hurry" })
	for _, careful := range []bool{true, false} {
		suite := Suite{
			Caps:   partitionedCaps(),
			Open:   func(testing.TB) backends.Backend { return &partitioned{reference: newReference(nil), careful: careful} },
			Settle: func(_ testing.TB, b backends.Backend) { b.(*partitioned).settle() },
		}
		if fails(t, checks[at], suite) == careful {
			t.Errorf("with memory of its own %v, the check failed %v", careful, !careful)
		}
	}
}
