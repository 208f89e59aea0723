package denycache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend stands before another one and answers what it knows to be refused.
type Backend struct {
	next      backends.Backend
	cfg       Config
	now       func() time.Time
	start     time.Time
	precision limit.Instant
	maxAge    limit.Instant
	maxOps    int
	whole     bool // a refused request leaves no traces
	countsOn  bool // but for a cost that overflows
	cache     cache
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend that stands before next, whose promises are caps, and
// closes it with itself. now measures time and must not go back; outside tests it
// is time.Now.
func New(next backends.Backend, caps *backends.Caps, cfg Config, now func() time.Time) *Backend {
	cfg.setDefaults()
	b := &Backend{
		next: next, cfg: cfg, now: now, start: now(),
		precision: limit.Instant(max(1, caps.Precision.Microseconds())),
		maxAge:    limit.Instant(cfg.MaxAge.Microseconds()),
		maxOps:    caps.MaxOps,
		whole:     caps.Atomicity == backends.Whole,
		countsOn:  caps.PlainWindows,
	}
	b.cache.init(cfg.MaxKeys, cfg.MaxAge)
	return b
}

// work is the memory of a Take that needs the store.
type work struct {
	finds []find // for each op of the requests that go to the store
	down  []int  // these requests
	reqs  []limit.Request
	out   []limit.Verdict
}

var works = sync.Pool{New: func() any { return new(work) }}

// orNew returns w, or a new one if w is nil: many takes need none.
func (w *work) orNew() *work {
	if w == nil {
		return works.Get().(*work)
	}
	return w
}

// free gives w back without what it points to.
func (w *work) free() {
	clear(w.finds)
	clear(w.reqs)
	clear(w.out)
	w.finds, w.down, w.reqs, w.out = w.finds[:0], w.down[:0], w.reqs[:0], w.out[:0]
	works.Put(w)
}

// room returns room for n finds, which append then finds in its place.
func (w *work) room(n int) []find {
	w.finds = slices.Grow(w.finds, n)
	finds := w.finds[len(w.finds) : len(w.finds)+n]
	clear(finds)
	return finds
}

// Take answers what is known to be refused and sends the rest on in one slice,
// in its order.
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	now := b.now().Sub(b.start)
	var w *work
	for i := range reqs {
		var one [1]find // as most requests have one op
		finds := one[:]
		if n := len(reqs[i].Ops); n != 1 {
			w = w.orNew()
			finds = w.room(n)
		}
		at := b.look(&reqs[i], finds, now)
		if b.answer(&reqs[i], &out[i], finds, at) {
			continue
		}
		w = w.orNew()
		b.before(&reqs[i], finds)
		w.finds = append(w.finds, finds...)
		w.down = append(w.down, i)
	}
	if w == nil {
		return
	}
	if len(w.down) > 0 {
		b.send(ctx, w, reqs, out)
		b.learn(w, reqs, out, now)
	}
	w.free()
}

// send has the store decide the requests that go down. The memory of their
// verdicts goes with them and comes back.
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

// look finds what is known of req's ops, and the instant it is known for.
func (b *Backend) look(req *limit.Request, finds []find, now time.Duration) limit.Instant {
	for i := range req.Ops {
		op, f := &req.Ops[i], &finds[i]
		if b.unkept(op) {
			continue // it is never known
		}
		f.place = b.cache.place(&op.Key)
		b.cache.lookup(f, op, req.At != 0, now)
	}
	at := b.instant(req, finds, now)
	for i := range req.Ops {
		f := &finds[i]
		if f.found && (req.At == 0 || at-f.at < b.maxAge) {
			f.known = f.answer(req.Ops[i].Cost, at, &f.outcome)
		}
	}
	return at
}

// unkept says whether nothing is kept of op: of requests in flight, since anybody may
// end one at any moment; of names that take much memory; and of a cost that the store
// counts although it refuses it.
func (b *Backend) unkept(op *limit.Op) bool {
	if op.Limit != nil && (op.Limit.Is(limit.Leased) || b.countsOn && op.Overflows()) {
		return true
	}
	return len(op.Key.Group) > backends.MaxKeyLen
}

// answer refuses req if one of its ops is known to be refused and nothing of it
// is the store's to do.
func (b *Backend) answer(req *limit.Request, v *limit.Verdict, finds []find, at limit.Instant) bool {
	settled := false
	for i := range finds {
		switch op := &req.Ops[i]; {
		case op.Limit == nil || b.unkept(op) || op.Cost <= 0:
			return false
		case finds[i].known:
			if !sure(finds, i) {
				return false
			}
			settled = settled || !op.Shadow
		case op.Each, overflows(op): // it may have to be charged
			return false
		}
	}
	if !settled || len(finds) > b.maxOps {
		return false
	}
	v.Reset(len(finds))
	v.At = at
	for i := range finds {
		if f := &finds[i]; f.known {
			v.Outcomes[i] = f.outcome
		} else {
			v.Outcomes[i] = f.lastSeen(&req.Ops[i], at)
		}
	}
	finds[0].s.hits.Add(1)
	return true
}

// overflows says whether op takes something if it has no room. A cost of one that
// has none finds nothing to take, unless it is owed.
func overflows(op *limit.Op) bool {
	return op.Overflows() && (op.Cost > 1 || op.Limit.Overflow() == limit.Debt)
}

// sure says whether the i-th op is refused also in this request: an earlier op
// under another limit on its key may change what there is.
func sure(finds []find, i int) bool {
	for j := range finds[:i] {
		if finds[j].id == finds[i].id && !finds[j].known {
			return false
		}
	}
	return true
}

// instant returns when req is decided: as the store's clock is, at most, by
// what was found for any of its ops.
func (b *Backend) instant(req *limit.Request, finds []find, now time.Duration) limit.Instant {
	if req.At != 0 {
		return b.down(req.At)
	}
	var at limit.Instant
	for i := range finds {
		if f := &finds[i]; f.found {
			// Another caller may have asked after this one read the clock.
			passed := limit.Instant(0).AddUp(max(now-f.sent, 0))
			at = max(at, f.at+b.down(passed+b.precision-1))
		}
	}
	return at
}

// down rounds down to what the store can tell apart.
func (b *Backend) down(t limit.Instant) limit.Instant {
	if b.precision == 1 {
		return t
	}
	return t - t%b.precision
}

// before sees to it that requests behind req, which goes to the store, are not
// answered from what the store may change for it: units that are given back make
// room, and so may units that are taken under another limit on the key.
func (b *Backend) before(req *limit.Request, finds []find) {
	for i := range req.Ops {
		switch f, cost := &finds[i], req.Ops[i].Cost; {
		case b.unkept(&req.Ops[i]):
		case cost < 0:
			f.drop(true)
		case cost > 0 && f.present && !f.known:
			f.drop(false)
		}
	}
}

// learn lets each request that was sent change what is kept, in their order.
func (b *Backend) learn(w *work, reqs []limit.Request, out []limit.Verdict, sent time.Duration) {
	finds := w.finds
	for _, i := range w.down {
		n := len(reqs[i].Ops)
		b.after(&reqs[i], &out[i], finds[:n], sent)
		finds = finds[n:]
	}
}

// after learns from what the store said to req.
func (b *Backend) after(req *limit.Request, v *limit.Verdict, finds []find, sent time.Duration) {
	failed := v.Err != nil || len(v.Outcomes) != len(req.Ops)
	if failed && errors.Is(v.Err, backends.ErrNotApplied) {
		return
	}
	for i := range req.Ops {
		op, f := &req.Ops[i], &finds[i]
		switch {
		case b.unkept(op):
		case op.Cost < 0 || failed && op.Cost != 0:
			f.drop(true)
		case failed:
		case !v.Outcomes[i].Admitted:
			if v.Outcomes[i].Taken > 0 && (f.present || f.changed()) { // as when it is charged
				f.gen = f.drop(false)
			}
			if alone(finds, i) && f.learn(op, &v.Outcomes[i], v.At) {
				f.keep(req, sent)
			}
		case op.Cost == 0:
		case v.Admitted || op.Each: // charged
			if f.present || f.changed() {
				f.drop(false)
			}
		default: // there was room, and another op refused
			if !b.whole { // perhaps taken and given back
				f.gen = f.drop(true)
			}
			if alone(finds, i) {
				f.see(op, &v.Outcomes[i], v.At)
				f.keep(req, sent)
			}
		}
	}
}

// keep inserts what was learnt.
func (f *find) keep(req *limit.Request, sent time.Duration) {
	f.given, f.sent = req.At != 0, sent
	f.insert(&f.refusal, f.gen)
}

// alone says whether no other op of the request has the key of the i-th. The
// outcome of a later one depends on what an earlier one would have taken.
func alone(finds []find, i int) bool {
	for j := range finds {
		if j != i && finds[j].id == finds[i].id {
			return false
		}
	}
	return true
}

// Forget passes keys on and forgets that they were refused.
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	drop := func() {
		for i := range keys {
			b.drop(&keys[i])
		}
	}
	drop()
	defer drop()
	return b.next.Forget(ctx, keys)
}

func (b *Backend) drop(k *limit.Key) {
	p := b.cache.place(k)
	p.drop(true)
}

// Flush forgets everything, also what takes in flight are about to tell.
func (b *Backend) Flush() {
	for i := range b.cache.shards {
		b.cache.shards[i].flush()
	}
}

// Ping asks the store.
func (b *Backend) Ping(ctx context.Context) error { return b.next.Ping(ctx) }

// Close closes the store.
func (b *Backend) Close() error { return b.next.Close() }
