package prefetch

import (
	"context"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Limits whose Share is [limit.AutoShare] take at once what a key is asked for in a tenth of a
// second, when a third of what they may hold is left. The store gets back what is not needed any more. No
// request waits for either.

const (
	unused    = time.Second           // without use a key gives back what it holds
	gather    = 5 * time.Millisecond  // wishes wait, so that they share trips
	part100   = 100                   // replicas together hold at most this part of what is left
	table     = "shares"              // of the registry
	countEach = 2 * time.Second       // replicas count each other, and for each of them
	countMore = 10 * time.Millisecond // later
)

// share returns how many units h may have. If that follows the traffic it is one and a half portions,
// and not more than this replica's part of a hundredth of what is left. Near a limit, and while
// that is not known, it is one: nothing is taken ahead.
func (b *Backend) share(h *holding, l *limit.Limit, now time.Duration) int64 {
	if !h.auto {
		return l.Share()
	}
	sharers := b.sharers.Load()
	if sharers == 0 || now-h.sent > unused {
		return 1
	}
	return max(min(h.pace.portion(now)*3/2, h.remaining/(part100*sharers)), 1)
}

// unbalanced says whether h holds a third of what it should, or twice as much.
func (b *Backend) unbalanced(h *holding, now time.Duration) bool {
	most := b.share(h, h.limit, now) - 1
	have := h.left + h.lent
	return h.asked == 0 && have < most && 3*have <= most || h.left > 2*most && h.chunk > 0
}

// balance returns the op after which h holds what it should, and which is to be settled by part.done.
func (b *Backend) balance(h *holding, now time.Duration) (p part, op limit.Op, at limit.Instant) {
	h.queued = false
	if h.gone || !b.unbalanced(h, now) {
		return p, op, at
	}
	if h.given {
		at = h.givenAt.Add(now - h.usedAt)
	}
	p = part{s: b.shard(&h.key), h: h, at: b.instant(h, at, now)}
	op = limit.Op{Key: h.key, Limit: h.limit.Strict()}
	most := b.share(h, h.limit, now) - 1
	if h.left > 2*most {
		op.Cost, op.AsOf = -min(h.left-most, h.chunk), h.chunkAt
		h.left, h.chunk = h.left+op.Cost, h.chunk+op.Cost
	} else if p.at >= h.again {
		p.ahead = most - h.left - h.lent
		h.asked, op.Cost = p.ahead, p.ahead
	}
	return p, op, at
}

// done notes what the store said to the op that balance returned.
func (p *part) done(op *limit.Op, v *limit.Verdict, sent time.Duration) {
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

// wish has h balanced soon. The caller has locked its shard.
func (b *Backend) wish(h *holding) {
	h.queued = true
	w := &b.wishes
	w.mu.Lock()
	w.list = append(w.list, h)
	w.mu.Unlock()
	w.signal()
}

// balanceAll grants the wishes until ctx ends. What has begun goes on: else units that are on their way were lost.
func (b *Backend) balanceAll(ctx context.Context) {
	for ctx.Err() == nil {
		some := b.wishes.next()
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
		if n := len(reqs); op.Cost != 0 {
			ops[n] = op
			parts, reqs = append(parts, p), append(reqs, limit.Request{At: at, Ops: ops[n : n+1 : n+1]})
		}
	}
	if len(reqs) == 0 {
		return
	}
	out := make([]limit.Verdict, len(reqs))
	b.next.Take(ctx, reqs, out)
	for i := range parts {
		parts[i].done(&ops[i], &out[i], now)
	}
}

// Run takes units ahead, gives back those that are not used, and counts the replicas, until ctx ends.
// Then it gives back what this process holds.
func (b *Backend) Run(ctx context.Context) {
	tick := time.NewTicker(unused)
	defer tick.Stop()
	due, used := time.Duration(0), -idle // when to count the replicas, and when there was reason to
	for {
		select {
		case <-ctx.Done():
			b.leave(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			b.sweep(unused)
		case <-b.wishes.wake:
		}
		now := b.now().Sub(b.start)
		if b.adapts() {
			used = now
		}
		if now-used >= idle {
			due, b.counted = now, 0
			b.sharers.Store(0)
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

// adapts says whether any share follows the traffic.
func (b *Backend) adapts() bool {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		any := s.auto.first != nil
		s.mu.Unlock()
		if any {
			return true
		}
	}
	return false
}

// countReplicas counts the replicas, and returns when to do so again. What it cannot count stays as it was.
// A replica that finds others takes nothing ahead before it has counted twice: by then they know of it.
// A store that has lost its rows knows of too few until all have written theirs again: so two counts decide.
func (b *Backend) countReplicas(ctx context.Context) time.Duration {
	n := int64(b.conf.Replicas)
	if b.conf.Registry == nil {
		b.sharers.Store(n)
		return countEach
	}
	each := countEach + time.Duration(b.counted)*countMore
	life := 3 * each
	if b.counted == 0 { // of as many as there may be
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
		b.sharers.Store(max(n, b.counted))
	} else {
		each += unused // as late as others may look at their clocks
	}
	b.counted = n
	return each
}

// sweep has keys that have not been used for a time give back what they hold, and then forgets them.
func (b *Backend) sweep(since time.Duration) {
	now := b.now().Sub(b.start)
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for h := s.auto.last; h != nil && now-h.usedAt >= since; {
			newer := h.newer
			switch {
			case h.asked+h.lent > 0 || h.queued:
			case h.left > 0 && h.chunk > 0:
				b.wish(h)
			default:
				s.drop(h)
			}
			h = newer
		}
		s.mu.Unlock()
	}
}

// leave gives back what this process holds, and takes nothing ahead any more.
func (b *Backend) leave(ctx context.Context) {
	adapts := b.adapts()
	b.sharers.Store(0)
	b.sweep(0)
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	b.balanceAll(ctx)
	if adapts && b.conf.Registry != nil {
		_ = b.conf.Registry.Drop(ctx, table, []string{b.me}) // else it expires
	}
}
