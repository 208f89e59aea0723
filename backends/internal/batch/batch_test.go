package batch

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// start is when the tests begin.
const start = limit.Instant(1_700_000_000_000_000)

func seeded(t testing.TB) *rand.Rand { return random.Rand(t, 0) }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomOp draws an op, which may be any that leases know.
func randomOp(r *rand.Rand, l *limit.Limit) limit.Op {
	op := limit.Op{Limit: l, Cost: pick[int64](r, 1, 1, 1, 1, 0, -1, -1, -2), Holder: strconv.Itoa(r.IntN(12))}
	op.Ending = pick(r, limit.EndLease, limit.EndAttempt, limit.EndOwner, limit.EndKnown)
	if op.Cost < 1 && r.IntN(4) == 0 {
		op.Holder = ""
	}
	return op
}

// reread returns a state as it is after it was written and read back.
func reread(t testing.TB, s limit.State) (read limit.State) {
	t.Helper()
	data, err := s.AppendBinary(nil)
	if err == nil {
		err = read.UnmarshalBinary(data)
	}
	if err != nil {
		t.Fatalf("%v: %+v", err, s)
	}
	return read
}

// TestBatchesDecideLikeSingles: a slice over states that are written and read
// back gives the answers of its requests one by one, and writes each state that
// an answer depends on.
func TestBatchesDecideLikeSingles(t *testing.T) {
	r := seeded(t)
	var limits []*limit.Limit
	for _, a := range limit.AllAlgorithms() {
		limits = append(limits, limit.MustNew(limit.Spec{Algorithm: a, Max: 5, Window: time.Second}))
	}
	held := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: 2, Window: time.Second, Hold: time.Second})
	limits = append(limits, held)
	rows, model := map[limit.Key]limit.State{}, map[limit.Key]limit.State{}
	var b Batch
	now := start
	for range 3000 {
		b.Reset()
		reqs := make([]limit.Request, 1+r.IntN(5))
		got := make([]limit.Verdict, len(reqs))
		for i := range reqs {
			for range 1 + r.IntN(4) {
				at := r.IntN(len(limits))
				op := randomOp(r, limits[at])
				op.Key = limit.Key{Group: strconv.Itoa(r.IntN(3)), Limit: strconv.Itoa(at)}
				op.Shadow, op.Each = r.IntN(5) == 0, r.IntN(5) == 0
				reqs[i].Ops = append(reqs[i].Ops, op)
			}
			b.Add(&reqs[i], &got[i])
		}
		keys := b.Keys()
		if !slices.IsSortedFunc(keys, func(a, b limit.Key) int {
			return slices.Compare([]string{a.Group, a.Limit}, []string{b.Group, b.Limit})
		}) {
			t.Fatalf("keys are not in order: %q", keys)
		}
		for i, k := range keys {
			if i > 0 && keys[i-1] == k {
				t.Fatalf("%q is there twice", k)
			}
			if s, ok := rows[k]; ok {
				b.Put(i, s)
			}
		}
		b.Decide(now)
		for i, c := range b.Changed() {
			if c.Key != keys[i] {
				t.Fatalf("change of %q at %d, where %q is", c.Key, i, keys[i])
			}
			rows[c.Key] = reread(t, *c.State)
		}
		for i := range reqs {
			want := decideOn(model, &reqs[i], now)
			if want.Admitted != got[i].Admitted || !slices.Equal(want.Outcomes, got[i].Outcomes) {
				t.Fatalf("at %d: %+v\ngot  %+v\nwant %+v", now, reqs[i], got[i], want)
			}
		}
		now += limit.Instant(r.Int64N(400_000))
	}
}

// decideOn decides req on the states of a map, and keeps all of them.
func decideOn(model map[limit.Key]limit.State, req *limit.Request, now limit.Instant) (v limit.Verdict) {
	states := make([]limit.State, len(req.Ops))
	for i := range states {
		states[i] = model[req.Ops[i].Key]
	}
	limit.Decide(states, req, now, &v, nil)
	for i := range states {
		if first(req.Ops, i) {
			model[req.Ops[i].Key] = states[i]
		}
	}
	return v
}
