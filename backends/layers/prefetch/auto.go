package prefetch

import (
	"context"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Limits whose Share is [limit.AutoShare] take at once what a key needs in a tenth of a second, when a third of
// their share is left. Units that are not needed any more are returned to the store. No request waits for either.

const (
	unused    = time.Second           // a key that was not used for so long returns its units
	gather    = 5 * time.Millisecond  // how long Run collects holdings for a trip
	maxPart   = 100                   // all replicas together hold at most 1/maxPart of what is left
	table     = "shares"              // of the registry
	countEach = 2 * time.Second       // how often replicas count each other,
	countMore = 10 * time.Millisecond // and how much less often for each replica
)

// share returns how many units h may have. A share that follows the traffic is one and a half portions, and at most
// this replica's part of 1/maxPart of what is left. It is one, so that nothing is taken ahead, near a limit and
// while what is left or the number of replicas is unknown.
func (b *Backend) share(h *holding, l *limit.Limit, now time.Duration) int64 {
	if !h.auto {
		return l.Share()
	}
	replicas := b.replicas.Load()
	if replicas == 0 || now-h.sent > unused {
		return 1
	}
	return max(min(h.pace.portion(now)*3/2, h.remaining/(maxPart*replicas)), 1)
}

// missing returns how many units h is to take, or, below zero, to return: it has a third of its share or less, or
// more than twice as much.
func (b *Backend) missing(h *holding, now time.Duration) int64 {
	most := b.share(h, h.limit, now) - 1
	have := h.left + h.lent
	switch {
	case h.left > 2*most:
		return -min(h.left-most, h.returnable)
	case h.asked == 0 && have < most && 3*have <= most:
		return most - have
	}
	return 0
}

// balance returns the op that takes or returns units for h, and its instant. Its cost is zero if there is nothing to
// do. The caller has locked the shard, and passes the answer to part.finish.
func (b *Backend) balance(h *holding, now time.Duration) (p part, op limit.Op, at limit.Instant) {
	h.queued = false
	if h.gone {
		return p, op, at
	}
	if h.given {
		at = h.givenAt.Add(now - h.usedAt)
	}
	p = part{s: b.shard(&h.key), h: h}
	n := b.missing(h, now)
	switch {
	case n < 0:
		op.AsOf = h.takenAt
		h.left, h.returnable = h.left+n, h.returnable+n
	case n > 0 && b.instant(h, at, now) < h.again:
		n = 0
	default:
		p.ahead, h.asked = n, h.asked+n
	}
	op.Key, op.Limit, op.Cost = h.key, h.limit.Strict(), n
	return p, op, at
}

// finish records the store's answer to the op that balance returned.
func (p *part) finish(op *limit.Op, v *limit.Verdict, sent time.Duration) {
	if p.ahead > 0 {
		p.keep(v, sent)
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if v.Err != nil || len(v.Outcomes) != 1 {
		p.s.expired += uint64(-op.Cost)
		return
	}
	back := -v.Outcomes[0].Taken
	p.s.returned += uint64(back)
	p.s.expired += uint64(-op.Cost - back)
	p.h.hear(v.At, &v.Outcomes[0], sent)
}

// balanceAll balances the queued holdings until ctx ends. It completes a trip that has begun: otherwise the units of
// that trip would be lost.
func (b *Backend) balanceAll(ctx context.Context) {
	for ctx.Err() == nil {
		some := b.queue.next()
		if len(some) == 0 {
			return
		}
		b.balanceSome(context.WithoutCancel(ctx), some)
	}
}

func (b *Backend) balanceSome(ctx context.Context, some []*holding) {
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	now := b.now().Sub(b.start)
	parts, ops := make([]part, 0, len(some)), make([]limit.Op, len(some))
	var reqs []limit.Request
	for _, h := range some {
		s := b.shard(&h.key)
		s.mu.Lock()
		p, op, at := b.balance(h, now)
		s.mu.Unlock()
		if op.Cost != 0 {
			n := len(reqs)
			ops[n] = op
			parts, reqs = append(parts, p), append(reqs, limit.Request{At: at, Ops: ops[n : n+1 : n+1]})
		}
	}
	if len(reqs) == 0 {
		return
	}
	out := make([]limit.Verdict, len(reqs))
	b.Backend.Take(ctx, reqs, out)
	for i := range parts {
		parts[i].finish(&ops[i], &out[i], now)
	}
}

// Run takes units ahead, returns those that are not used, and counts the replicas, until ctx ends. Then it returns
// all units that this process holds.
func (b *Backend) Run(ctx context.Context) {
	tick := time.NewTicker(unused)
	defer tick.Stop()
	due, used := time.Duration(0), -idle // when to count the replicas, and when a share last followed traffic
	for {
		auto := true // only such shares wake Run
		select {
		case <-ctx.Done():
			b.leave(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			auto = b.sweep(unused)
		case <-b.queue.wake:
		}
		now := b.now().Sub(b.start)
		if auto {
			used = now
		}
		if now-used >= idle {
			due, b.counted = now, 0
			b.replicas.Store(0)
		} else if now >= due {
			due = now + b.countReplicas(ctx)
		}
		select {
		case <-time.After(gather):
			b.balanceAll(ctx)
		case <-ctx.Done():
		}
	}
}

// countReplicas counts the replicas, and returns when to do so again. If the registry fails, the last count remains.
// A replica that finds others takes nothing ahead until it has counted twice: by then the others have counted it.
// After the registry has lost its rows it lists too few replicas until all have written their rows again, so the
// larger of two counts is used.
func (b *Backend) countReplicas(ctx context.Context) time.Duration {
	n := int64(b.conf.Replicas)
	if b.conf.Registry == nil {
		b.replicas.Store(n)
		return countEach
	}
	each := countEach + time.Duration(b.counted)*countMore
	life := 3 * each
	if b.counted == 0 { // for any number of replicas
		life = idle
	}
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	if _, err := b.conf.Registry.Put(ctx, table, []backends.Row{{Key: b.me}}, life); err != nil {
		return each
	}
	rows, err := b.conf.Registry.List(ctx, table)
	if err != nil {
		return each
	}
	n = max(n, int64(len(rows)))
	each = countEach + time.Duration(n)*countMore
	if b.counted > 0 || len(rows) == 1 {
		b.replicas.Store(max(n, b.counted))
	} else {
		each += unused // another replica may look at its clock so much later
	}
	b.counted = n
	return each
}

// sweep queues keys that were unused for a time and hold units, and forgets those that hold none. It reports whether
// keys are left whose share follows the traffic.
func (b *Backend) sweep(since time.Duration) (auto bool) {
	now := b.now().Sub(b.start)
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for h := s.auto.last; h != nil && now-h.usedAt >= since; {
			newer := h.newer
			switch {
			case h.asked+h.lent > 0 || h.queued:
			case h.left > 0 && h.returnable > 0:
				b.queue.add(h)
			default:
				s.drop(h)
			}
			h = newer
		}
		auto = auto || s.auto.first != nil
		s.mu.Unlock()
	}
	return auto
}

// leave returns the units that this process holds. After it nothing is taken ahead.
func (b *Backend) leave(ctx context.Context) {
	b.replicas.Store(0)
	b.sweep(0)
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	b.balanceAll(ctx)
	if b.counted > 0 {
		_ = b.conf.Registry.Drop(ctx, table, []string{b.me}) // if this fails the row expires
	}
}
