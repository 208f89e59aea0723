package denycache

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend stands before another one and answers what it knows to be refused.
type Backend struct {
	next     backends.Backend
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
		next: next, now: now, start: now(), maxAge: time.Second,
		slack: max(0, caps.Precision-time.Microsecond), maxOps: caps.MaxOps, countsOn: caps.PlainWindows,
	}
	b.cache.init(100_000)
	return b
}

// work is the memory of a Take that needs the store.
type work struct {
	down []int // the requests that go to the store
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
		if b.answer(&reqs[i], &out[i], now) {
			continue
		}
		if w == nil {
			w = works.Get().(*work)
		}
		w.down = append(w.down, i)
	}
	if w == nil {
		return
	}
	gen := b.cache.gen.Load()
	b.send(ctx, w, reqs, out)
	for _, i := range w.down {
		b.learn(&reqs[i], &out[i], now, gen)
	}
	clear(w.reqs)
	clear(w.out)
	w.down, w.reqs, w.out = w.down[:0], w.reqs[:0], w.out[:0]
	works.Put(w)
}

// send has the store decide the requests that go down. The memory of their verdicts
// goes with them and comes back.
func (b *Backend) send(ctx context.Context, w *work, reqs []limit.Request, out []limit.Verdict) {
	if len(w.down) == len(reqs) {
		b.next.Take(ctx, reqs, out)
		return
	}
	for _, i := range w.down {
		w.reqs = append(w.reqs, reqs[i])
		w.out = append(w.out, out[i])
	}
	b.next.Take(ctx, w.reqs, w.out)
	for j, i := range w.down {
		out[i] = w.out[j]
	}
}

// answer refuses req if one of its ops is known to be refused and nothing of it is the
// store's to do.
func (b *Backend) answer(req *limit.Request, v *limit.Verdict, now time.Duration) bool {
	v.Reset(len(req.Ops))
	ours := len(req.Ops) <= b.maxOps
	var settled *shard
	for i := range req.Ops {
		op := &req.Ops[i]
		if !b.keeps(op) || op.Cost <= 0 {
			ours = false
			if op.Cost < 0 {
				b.cache.drop(&op.Key) // requests behind this one, and others, are to find the room
			}
			continue
		}
		s, known := b.look(op, req.At, now, v, i)
		switch {
		case !known:
			ours = ours && !op.Each && (op.Cost == 1 || op.Limit.Overflow() == limit.Refuse)
		case !op.Shadow:
			settled = s
		}
	}
	if !ours || settled == nil {
		return false
	}
	settled.hits.Add(1)
	return true
}

// keeps says whether refusals of op are kept: not those of requests in flight, of which
// anybody may end one at any moment, nor where the store takes something all the same.
func (b *Backend) keeps(op *limit.Op) bool {
	if op.Limit == nil || op.Limit.Is(limit.Leased) {
		return false
	}
	over := op.Limit.Overflow()
	return over == limit.Refuse || over == limit.Saturate && !b.countsOn
}

// look fills the i-th outcome of v from what is kept for op, and says whether op has no
// room now.
func (b *Backend) look(op *limit.Op, at limit.Instant, now time.Duration, v *limit.Verdict, i int) (*shard, bool) {
	out := &v.Outcomes[i]
	if *out = (limit.Outcome{Admitted: true, Remaining: op.Limit.Capacity()}); op.Cost > out.Remaining {
		out.Admitted, out.Retry = false, limit.Never
	}
	r, s := b.cache.get(op)
	if r.limit == nil {
		return s, false
	}
	if at == 0 { // Another caller may have asked after this one read the clock.
		at = r.at.AddUp(max(now-r.sent, 0) + b.slack)
	}
	if at.Sub(r.at) >= b.maxAge {
		return s, false
	}
	if !r.answer(op.Cost, at, out) {
		return s, false
	}
	if v.At == 0 || at < v.At {
		v.At = at // at the earliest, all that is known to be refused still is
	}
	return s, true
}

// learn keeps what the store said to req, but for ops that share a key: what a later one
// was told includes what an earlier one would have taken.
func (b *Backend) learn(req *limit.Request, v *limit.Verdict, sent time.Duration, gen uint64) {
	for i := range req.Ops {
		op := &req.Ops[i]
		if op.Cost < 0 {
			b.cache.drop(&op.Key)
		}
		if op.Cost <= 0 || v.Err != nil || len(v.Outcomes) != len(req.Ops) || !b.keeps(op) {
			continue
		}
		out, shares := &v.Outcomes[i], func(o limit.Op) bool { return o.Key == op.Key }
		if out.Admitted && (v.Admitted || op.Each) ||
			slices.ContainsFunc(req.Ops[:i], shares) || slices.ContainsFunc(req.Ops[i+1:], shares) {
			continue
		}
		r := refusal{}
		if r.learn(op, out, v.At) {
			r.sent = sent
			b.cache.put(&op.Key, &r, gen)
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
	return b.next.Forget(ctx, keys)
}

// Ping asks the store.
func (b *Backend) Ping(ctx context.Context) error { return b.next.Ping(ctx) }

// Close closes the store.
func (b *Backend) Close() error { return b.next.Close() }
