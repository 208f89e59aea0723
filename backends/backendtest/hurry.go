package backendtest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// checkHurry: requests over several groups, most of them refused by one of
// them, are taken with deadlines that end at every moment of a Take. Once Take
// returns, the store no longer reads the caller's memory. It finishes its work for
// the right keys: no limit is exceeded, and the units of refused requests come
// back.
func checkHurry(e *env) {
	if e.s.Caps.MaxOps < 3 {
		e.Skip("requests have too few ops")
	}
	e.open()
	for _, a := range e.algorithms() {
		e.hurry(a)
	}
}

// hurried is how many requests hurry sends for each algorithm.
const hurried = 120

// A hurriedKey is one that hurry uses, and what its callers know.
type hurriedKey struct {
	key               limit.Key
	limit             *limit.Limit
	admitted, unknown int64 // units
}

func (e *env) hurry(a limit.Algorithm) {
	now := e.start()
	keys := make([]*hurriedKey, 4) // the last one has little room
	for i := range keys {
		keys[i] = &hurriedKey{key: e.key("hurry"+strconv.Itoa(i), "k", a), limit: e.longLimit(a, 5000)}
	}
	last := keys[len(keys)-1]
	last.limit = e.longLimit(a, 5)
	usual := e.usualTime(now, keys[0])
	for i := range hurried {
		req := limit.Request{At: now}
		for j := range keys {
			k := keys[(i+j)%len(keys)]
			if k == last || e.r.IntN(3) > 0 {
				req.Ops = append(req.Ops, limit.Op{Key: k.key, Limit: k.limit, Cost: 1 + int64(j%2)})
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*2*usual/hurried)
		ops := slices.Clone(req.Ops)
		reqs, out := []limit.Request{req}, make([]limit.Verdict, 1)
		e.b.Take(ctx, reqs, out)
		cancel()
		note(keys, ops, &out[0])
		overwrite(reqs, out)
	}
	e.settle()
	for _, k := range keys {
		e.wantUsed(now, k)
	}
}

// usualTime returns about how long a Take takes.
func (e *env) usualTime(now limit.Instant, k *hurriedKey) time.Duration {
	var times []time.Duration
	for range 9 {
		began := time.Now()
		e.takeOne(now, k.key, k.limit, 0)
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return max(times[len(times)/2], 20*time.Microsecond)
}

// note adds what a verdict says of ops to their keys.
func note(keys []*hurriedKey, ops []limit.Op, v *limit.Verdict) {
	for i := range ops {
		for _, k := range keys {
			switch {
			case k.key != ops[i].Key:
			case v.Err != nil:
				k.unknown += ops[i].Cost
			case v.Admitted:
				k.admitted += ops[i].Cost
			}
		}
	}
}

// overwrite uses the memory of a Take for something else.
func overwrite(reqs []limit.Request, out []limit.Verdict) {
	clear(reqs[0].Ops)
	clear(out[0].Outcomes)
	reqs[0] = limit.Request{}
	out[0] = limit.Verdict{}
}

// peekInPeace returns what is left of a key. Short deadlines may have closed connections or opened a circuit, so it
// retries until the store answers.
func (e *env) peekInPeace(now limit.Instant, k *hurriedKey) limit.Outcome {
	e.Helper()
	reqs, out := []limit.Request{request(now, k.key, k.limit, 0)}, make([]limit.Verdict, 1)
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := calm()
		e.b.Take(ctx, reqs, out)
		cancel()
		if out[0].Err == nil {
			return out[0].Outcomes[0]
		}
		if !errors.Is(out[0].Err, backends.ErrUnavailable) || time.Now().After(until) {
			e.Fatalf("the store does not answer: %v", out[0].Err)
		}
	}
}

// wantUsed compares what is used under a key with what callers know of it.
func (e *env) wantUsed(now limit.Instant, k *hurriedKey) {
	e.Helper()
	used := k.limit.Capacity() - e.peekInPeace(now, k).Remaining
	if most := min(k.admitted+k.unknown, k.limit.Capacity()); used < k.admitted || used > most {
		e.Errorf("%v under %q: %d units are used; %d were admitted, and of %d more nobody knows", k.limit, k.key, used,
			k.admitted, k.unknown)
	}
	if k.admitted > k.limit.Capacity() {
		e.Errorf("%v under %q: %d units were admitted", k.limit, k.key, k.admitted)
	}
}
