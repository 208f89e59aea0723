package prefetch

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend stands before another one, takes units of it ahead, and spends
// them.
type Backend struct {
	backends.Backend // the store

	now       func() time.Time
	start     time.Time
	precision limit.Instant
	maxOps    int
	seed      maphash.Seed
	shards    []shard // a power of two, at most backends.MaxShards

	conf     Config
	me       string       // the name of this process in the registry
	replicas atomic.Int64 // that share the store; 0: unknown
	counted  int64        // replicas that Run counted last; 0: not in the last minute of traffic
	queue    queue
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend that stands before next, whose promises are caps, and
// closes it with itself. now measures time; outside tests it is time.Now
// and must not go back.
func New(next backends.Backend, caps *backends.Caps, cfg Config, now func() time.Time) *Backend {
	cfg.setDefaults()
	n := backends.ShardCount(cfg.MaxKeys)
	b := &Backend{
		Backend: next, now: now, start: now(),
		precision: limit.Instant(max(1, caps.Precision.Microseconds())),
		maxOps:    caps.MaxOps,
		seed:      maphash.MakeSeed(),
		shards:    make([]shard, n),
		conf:      cfg, me: fmt.Sprintf("%016x", rand.Uint64()),
		queue: queue{wake: make(chan struct{}, 1)},
	}
	for i := range b.shards {
		b.shards[i].init((cfg.MaxKeys + n - 1) / n)
	}
	return b
}

// A part is what becomes of one op.
type part struct {
	s       *shard
	h       *holding // nil if the op is not shared
	here    bool     // it is paid here, or only asked
	final   bool     // nothing is left to be done
	epoch   uint64   // of h when it was paid
	ahead   int64    // units to be taken ahead on this occasion
	outcome limit.Outcome
	at      limit.Instant // of outcome
}

// work is the memory of a Take.
type work struct {
	parts []part // for each op of the requests that go to the store
	down  []int  // these requests
	reqs  []limit.Request
	ops   []limit.Op
	out   []limit.Verdict
	old   []limit.Outcome
}

var works = sync.Pool{New: func() any { return new(work) }}

// free gives w back without what it points to.
func (w *work) free() {
	clear(w.parts)
	clear(w.reqs)
	clear(w.ops)
	clear(w.out)
	w.parts, w.down, w.reqs, w.ops, w.out = w.parts[:0], w.down[:0], w.reqs[:0], w.ops[:0], w.out[:0]
	works.Put(w)
}

// Take answers what can be paid here, and sends the rest on in one slice, in
// its order, with what is to be taken ahead at its end.
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if !slices.ContainsFunc(reqs, anyShared) {
		b.Backend.Take(ctx, reqs, out)
		return
	}
	now := b.now().Sub(b.start)
	w := works.Get().(*work)
	for i := range reqs {
		first := len(w.parts)
		if here := b.plan(w, &reqs[i], now); !here {
			w.down = append(w.down, i)
			continue
		}
		b.answer(&reqs[i], &out[i], w.parts[first:])
		w.parts = w.parts[:first]
	}
	if len(w.down) > 0 {
		b.send(ctx, w, reqs, out)
		b.settle(w, reqs, out, now)
	}
	w.free()
}

func anyShared(req limit.Request) bool {
	for i := range req.Ops {
		if l := req.Ops[i].Limit; l != nil && l.TakesAhead() {
			return true
		}
	}
	return false
}

// shared reports whether units of op's limit can be held for it.
func shared(op *limit.Op) bool {
	if op.Limit == nil || !op.Limit.TakesAhead() || op.AsOf != 0 || len(op.Key.Group) > backends.MaxKeyLen ||
		len(op.Key.Limit) > backends.MaxKeyLen {
		return false
	}
	return op.Limit.Is(limit.Prefetched)
}

// plan pays the ops of req that can be paid here, adds a part for each op to
// w, and reports whether that is all there is to do.
func (b *Backend) plan(w *work, req *limit.Request, now time.Duration) (here bool) {
	here = len(req.Ops) > 0 && len(req.Ops) <= b.maxOps
	fits := here && !limit.HasAlternatives(req.Ops)
	for i := range req.Ops {
		var p part
		if op := &req.Ops[i]; fits && shared(op) {
			p.s = b.shard(&op.Key)
			p.final = len(req.Ops) == 1
			b.pay(&p, op, req.At, now)
		}
		here = here && p.here
		w.parts = append(w.parts, p)
	}
	return here
}

// pay pays op from held units, or else decides how many to take ahead.
func (b *Backend) pay(p *part, op *limit.Op, given limit.Instant, now time.Duration) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.find(op, given != 0)
	if h == nil && op.Cost > 0 && (op.Limit.Share() == limit.AutoShare || op.Cost < op.Limit.Share()) {
		h = s.add(op, given != 0, now)
		if h != nil && h.auto && b.replicas.Load() == 0 {
			b.queue.signal() // Run is to count the replicas
		}
	}
	if h == nil {
		return
	}
	p.h = h
	s.use(h, now)
	p.at = b.instant(h, given, now)
	if h.auto {
		h.pace.count(op.Cost, now)
		h.givenAt = given
	}
	// Units that may have expired are not spent, but kept until the store says that it
	// has: else as much again would be taken of what is left of a window.
	if op.Cost < 0 || max(op.Cost, 1) > h.left || p.at >= h.expires {
		p.ahead = h.ask(op, p.at, b.share(h, op.Limit, now))
		return
	}
	h.left -= op.Cost
	if h.auto && !h.queued && b.missing(h, now) != 0 {
		b.queue.add(h)
	}
	p.here, p.epoch, p.outcome = true, h.epoch, h.outcome(op, p.at)
	if p.final {
		s.hits++
	} else {
		h.lent += op.Cost
	}
}

// instant returns when a request is decided that came at now: at the instant
// it gives, or as the store's clock is at most.
func (b *Backend) instant(h *holding, given limit.Instant, now time.Duration) limit.Instant {
	if given != 0 {
		return b.down(given)
	}
	// Another caller may have asked after this one read the clock.
	passed := limit.Instant(0).AddUp(max(now-h.sent, 0))
	return h.at + b.down(passed+b.precision-1)
}

// down rounds down to the precision of the store.
func (b *Backend) down(t limit.Instant) limit.Instant {
	if b.precision == 1 {
		return t
	}
	return t - t%b.precision
}

// answer writes the verdict of req, all of whose ops are paid here.
func (b *Backend) answer(req *limit.Request, v *limit.Verdict, parts []part) {
	v.Reset(len(parts))
	v.Admitted = true
	for i := range parts {
		p := &parts[i]
		v.Outcomes[i], v.At = p.outcome, max(v.At, p.at)
		if !p.final {
			p.s.mu.Lock()
			p.h.lent -= req.Ops[i].Cost
			if i == 0 {
				p.s.hits++
			}
			p.s.mu.Unlock()
		}
	}
}

// send has the store decide what is not paid here, and then what is to be taken
// ahead, which thus never has a request refused. The memory of the requests'
// verdicts goes with them and comes back.
func (b *Backend) send(ctx context.Context, w *work, reqs []limit.Request, out []limit.Verdict) {
	parts := w.parts
	for _, i := range w.down {
		n := len(reqs[i].Ops)
		w.reqs = append(w.reqs, w.rest(&reqs[i], parts[:n]))
		w.out = append(w.out, out[i])
		parts = parts[n:]
	}
	parts = w.parts
	for _, i := range w.down {
		for j := range reqs[i].Ops {
			if n := parts[j].ahead; n > 0 {
				op := &reqs[i].Ops[j]
				w.ops = append(w.ops, limit.Op{Key: op.Key, Limit: op.Limit.Strict(), Cost: n})
				last := len(w.ops)
				w.reqs = append(w.reqs, limit.Request{At: reqs[i].At, Ops: w.ops[last-1 : last : last]})
				w.out = append(w.out, limit.Verdict{})
			}
		}
		parts = parts[len(reqs[i].Ops):]
	}
	b.Backend.Take(ctx, w.reqs, w.out)
}

// rest returns req without what is paid here.
func (w *work) rest(req *limit.Request, parts []part) limit.Request {
	if !slices.ContainsFunc(parts, func(p part) bool { return p.here }) {
		return *req
	}
	first := len(w.ops)
	for i := range parts {
		if !parts[i].here {
			w.ops = append(w.ops, req.Ops[i])
		}
	}
	return limit.Request{At: req.At, Ops: w.ops[first:len(w.ops):len(w.ops)]}
}

// settle makes verdicts of what the store said, gives back what was paid for
// requests that are refused, and keeps what was taken ahead.
func (b *Backend) settle(w *work, reqs []limit.Request, out []limit.Verdict, sent time.Duration) {
	parts := w.parts
	for j, i := range w.down {
		n := len(reqs[i].Ops)
		out[i] = w.out[j]
		w.decide(&reqs[i], &out[i], parts[:n], sent)
		parts = parts[n:]
	}
	next := len(w.down)
	for j := range w.parts {
		if p := &w.parts[j]; p.ahead > 0 {
			p.keep(&w.out[next], sent)
			next++
		}
	}
}

// decide completes v, which has what the store said to the rest of req.
func (w *work) decide(req *limit.Request, v *limit.Verdict, parts []part, sent time.Duration) {
	said := 0
	for i := range parts {
		if !parts[i].here {
			said++
		}
	}
	failed := v.Err != nil || len(v.Outcomes) != said
	charged := !failed && !repeated(req, v, parts)
	w.old = append(w.old[:0], v.Outcomes...)
	if !failed && said < len(parts) {
		at, admitted := v.At, v.Admitted
		v.Reset(len(parts))
		v.At, v.Admitted = at, admitted
	}
	said = 0
	for i := range parts {
		p, op := &parts[i], &req.Ops[i]
		if p.here {
			p.settle(op, charged && (v.Admitted || op.Each))
			if !failed {
				v.Outcomes[i] = p.outcome
			}
		} else if !failed {
			v.Outcomes[i] = w.old[said]
			said++
			p.learn(op, v.At, &v.Outcomes[i], sent)
		}
	}
}

// repeated reports whether the store granted all of req before, and now charges
// nothing for it; see limit.Op.
func repeated(req *limit.Request, v *limit.Verdict, parts []part) bool {
	said := 0
	for i := range parts {
		if parts[i].here {
			continue
		}
		if v.Outcomes[said].Held && req.Ops[i].Cost > 0 {
			return true
		}
		said++
	}
	return false
}

// settle ends the loan of p's units: they are spent, or else given back if they
// have not expired meanwhile.
func (p *part) settle(op *limit.Op, spent bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	h := p.h
	h.lent -= op.Cost
	if spent {
		return
	}
	if h.epoch == p.epoch {
		h.left += op.Cost
	} else {
		p.s.expired += uint64(op.Cost)
	}
	p.outcome = h.outcome(op, p.at)
}

// learn keeps what the store said to an op, and adds the held units to it.
func (p *part) learn(op *limit.Op, at limit.Instant, out *limit.Outcome, sent time.Duration) {
	h := p.h
	if h == nil {
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	h.hear(at, out, sent)
	if out.Remaining >= op.Limit.Share() {
		h.again = 0
	}
	if at >= h.expires || !out.Admitted && op.Overflows() { // then held units are spent, too
		p.s.clear(h)
	}
	if h.left == 0 {
		return
	}
	out.Remaining = h.total(out.Remaining)
	if out.Admitted && max(op.Cost, 1) <= h.left {
		out.Retry = 0
	}
}

// keep holds what was taken ahead, if it was. When there was no room for it,
// there is no use in trying before there is.
func (p *part) keep(v *limit.Verdict, sent time.Duration) {
	s, h := p.s, p.h
	s.mu.Lock()
	defer s.mu.Unlock()
	h.asked = 0
	if v.Err != nil || len(v.Outcomes) != 1 {
		return
	}
	out := &v.Outcomes[0]
	h.hear(v.At, out, sent)
	if !out.Admitted {
		h.again = v.At.Add(out.Retry)
		if out.Retry == limit.Never {
			h.again = v.At.Add(h.limit.Window())
		}
		return
	}
	s.taken += uint64(p.ahead)
	if h.gone {
		s.expired += uint64(p.ahead)
		return
	}
	expires := h.expiry(v.At, out.Reset)
	if h.limit.Is(limit.Isolated) && expires != h.expires {
		s.clear(h) // of another window
	}
	h.noteTaken(p.ahead, v.At)
	h.left += p.ahead
	h.expires = expires
}

func (b *Backend) shard(k *limit.Key) *shard {
	return &b.shards[maphash.String(b.seed, k.Group)&uint64(len(b.shards)-1)]
}

// Forget passes keys on and drops the units held for them.
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	drop := func() {
		for i := range keys {
			b.shard(&keys[i]).forget(&keys[i])
		}
	}
	drop()
	defer drop() // also what takes in flight are about to bring
	return b.Backend.Forget(ctx, keys)
}

// Close drops all held units, and closes the store.
func (b *Backend) Close() error {
	for i := range b.shards {
		b.shards[i].flush()
	}
	return b.Backend.Close()
}
