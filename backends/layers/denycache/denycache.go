package denycache

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend stands before another one and answers what it knows to be refused.
type Backend struct {
	backends.Backend // the store

	now      func() time.Time
	start    time.Time
	maxAge   time.Duration
	slack    time.Duration // the store's clock may show so much less than the time
	maxOps   int
	countsOn bool // the store counts what overflows although it refuses it
	cache    cache
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend that stands before next, whose promises are caps, and closes it
// with itself. now measures time and must not go back; outside tests it is time.Now.
func New(next backends.Backend, caps *backends.Caps, now func() time.Time) *Backend {
	b := &Backend{
		Backend: next, now: now, start: now(), maxAge: time.Second,
		slack: max(0, caps.Precision-time.Microsecond), maxOps: caps.MaxOps, countsOn: caps.PlainWindows,
	}
	b.cache.init(100_000)
	return b
}

// work is the memory of a Take that needs the store.
type work struct {
	down []int  // the requests that go to the store
	held []bool // whether something is kept for a key of each of them
	reqs []limit.Request
	out  []limit.Verdict
}

var works = sync.Pool{New: func() any { return new(work) }}

// Take answers what is known to be refused and sends the rest on in one slice, in its
// order.
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	now := b.now().Sub(b.start)
	var w *work
	for i := range reqs {
		answered, held := b.answer(&reqs[i], &out[i], now)
		if answered {
			continue
		}
		if w == nil {
			w = works.Get().(*work)
		}
		w.down, w.held = append(w.down, i), append(w.held, held)
	}
	if w == nil {
		return
	}
	gen := b.cache.gen.Load()
	b.send(ctx, w, reqs, out)
	for j, i := range w.down {
		b.learn(&reqs[i], &out[i], now, gen)
		if out[i].Err != nil {
			b.recall(&reqs[i], &out[i])
		} else {
			b.settle(&reqs[i], &out[i], w.held[j])
		}
	}
	clear(w.reqs)
	clear(w.out)
	w.down, w.held, w.reqs, w.out = w.down[:0], w.held[:0], w.reqs[:0], w.out[:0]
	works.Put(w)
}

// send passes on to the store the requests that it must decide. The memory of their verdicts
// goes with them and comes back.
func (b *Backend) send(ctx context.Context, w *work, reqs []limit.Request, out []limit.Verdict) {
	if len(w.down) == len(reqs) {
		b.Backend.Take(ctx, reqs, out)
		return
	}
	for _, i := range w.down {
		w.reqs = append(w.reqs, reqs[i])
		w.out = append(w.out, out[i])
	}
	b.Backend.Take(ctx, w.reqs, w.out)
	for j, i := range w.down {
		out[i] = w.out[j]
	}
}

// answer refuses req if one of its ops is known to be refused and nothing of it is the
// store's to do. held says whether something is kept for one of its keys.
func (b *Backend) answer(req *limit.Request, v *limit.Verdict, now time.Duration) (answered, held bool) {
	v.Reset(len(req.Ops))
	ours := len(req.Ops) <= b.maxOps && !limit.HasAlternatives(req.Ops)
	var settled *shard
	for i := range req.Ops {
		op := &req.Ops[i]
		if !b.keeps(op) || op.Cost == 0 || op.GivesBack() {
			ours = false
			if op.GivesBack() {
				b.cache.drop(&op.Key) // requests behind this one, and others, are to find the room
			}
			continue
		}
		l := b.look(op, req.At, now, b.maxAge, v, i)
		held = held || l.held
		switch {
		case !l.refused:
			ours = ours && !op.Each && (op.Cost == 1 || op.Limit.Overflow() == limit.Refuse)
		case !op.Shadow:
			settled = l.shard
		}
	}
	if !ours || settled == nil {
		return false, held
	}
	settled.hits.Add(1)
	return true, held
}

// recall refuses req, of which the store could not be asked, if one of its ops is known to be refused for
// longer than that; or all are, of which the caller makes what it wants where they are shadows. What gives
// units back or ends a lease, and a request that can never be decided, keeps its error.
func (b *Backend) recall(req *limit.Request, v *limit.Verdict) {
	err := v.Err
	if !errors.Is(err, backends.ErrUnavailable) {
		return
	}
	v.Reset(len(req.Ops))
	now, all, refused := b.now().Sub(b.start), true, false
	var in *shard
	for i := range req.Ops {
		op := &req.Ops[i]
		if op.Limit == nil || op.Cost < 0 || op.Cost == 0 && op.Holder != "" || op.Alternative() {
			all, refused = false, false
			break
		}
		if l := b.look(op, req.At, now, math.MaxInt64, v, i); l.refused {
			in, refused = l.shard, refused || !op.Shadow
		} else {
			all = false
		}
	}
	if !refused && !all || in == nil {
		v.Fail(err)
		return
	}
	v.Admitted, v.Recalled = !refused, true
	in.recalled.Add(1)
}

// keeps reports whether refusals of op are kept for a store that answers: not those of requests in flight, of
// which anybody may end one at any moment, nor where the store takes something all the same.
func (b *Backend) keeps(op *limit.Op) bool {
	if op.Limit == nil || op.Limit.Is(limit.Leased) {
		return false
	}
	over := op.Limit.Overflow()
	return over == limit.Refuse || over == limit.Saturate && !b.countsOn
}

// looked is what is kept for an op.
type looked struct {
	shard         *shard
	held, refused bool // whether there is something, and whether the op has no room now
}

// look fills the i-th outcome of v from what is kept for op and not older than maxAge.
func (b *Backend) look(op *limit.Op, at limit.Instant, now, maxAge time.Duration, v *limit.Verdict, i int) looked {
	out := &v.Outcomes[i]
	if *out = (limit.Outcome{Admitted: true, Remaining: op.Limit.Capacity()}); op.Cost > out.Remaining {
		*out = limit.Outcome{Retry: limit.Never} // how much is left, only the store knows
	}
	p, s := b.cache.get(op)
	if p.limit == nil {
		return looked{shard: s}
	}
	r := p.unpack()
	if at == 0 { // Another caller may have asked after this one read the clock.
		at = r.at.AddUp(max(now-r.sent, 0) + b.slack)
	}
	if at.Sub(r.at) >= maxAge || r.recall && maxAge != math.MaxInt64 || !r.answer(op.Cost, at, out) {
		return looked{shard: s, held: true}
	}
	if v.At == 0 || at < v.At {
		v.At = at // at the earliest, all that is known to be refused still is
	}
	return looked{s, true, true}
}

// learn keeps what the store said to req. What it said to ops that share a key includes what the one before
// would have taken: of these the first is kept, for recall.
func (b *Backend) learn(req *limit.Request, v *limit.Verdict, sent time.Duration, gen uint64) {
	for i := range req.Ops {
		op := &req.Ops[i]
		if op.GivesBack() {
			b.cache.drop(&op.Key)
			continue
		}
		if v.Err != nil || len(v.Outcomes) != len(req.Ops) || op.Limit == nil || op.Limit.Is(limit.Leased) ||
			op.Alternative() {
			continue
		}
		out, shares := &v.Outcomes[i], func(o limit.Op) bool { return o.Key == op.Key }
		if v.Charged(req.Ops, i) || slices.ContainsFunc(req.Ops[:i], shares) {
			continue
		}
		// A question does not replace the refusal of another op with its key, which answers other requests.
		alone := !slices.ContainsFunc(req.Ops[i+1:], shares)
		if r := (refusal{}); (alone || op.Cost > 0) && r.learn(op, out, v.At, alone && b.keeps(op)) {
			r.sent = sent
			b.cache.put(&op.Key, &r, gen)
		}
	}
}

// settle forgets the refusals of what the store has admitted now: it has made room, as after a reset by
// another replica. A request that was granted before needs none.
func (b *Backend) settle(req *limit.Request, v *limit.Verdict, held bool) {
	if slices.ContainsFunc(v.Outcomes, func(o limit.Outcome) bool { return o.Held }) {
		return
	}
	for i := range req.Ops {
		op := &req.Ops[i]
		admitted := i < len(v.Outcomes) && v.Charged(req.Ops, i)
		if admitted && op.Cost >= 0 && (held || op.Cost == 0 || !b.keeps(op) && !op.Limit.Is(limit.Leased)) {
			b.cache.forget(&op.Key, max(op.Cost, 1))
		}
	}
}

// Forget passes keys on and forgets that they were refused.
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	drop := func() {
		for i := range keys {
			b.cache.drop(&keys[i])
		}
	}
	drop()
	defer drop()
	return b.Backend.Forget(ctx, keys)
}
