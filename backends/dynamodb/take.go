package dynamodb

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Take implements [backends.Backend].
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	groups := b.divide(reqs, out)
	if len(groups) == 0 {
		return
	}
	var all sync.WaitGroup
	for _, g := range groups[1:] {
		all.Add(1)
		b.conf.Panics.Go("dynamodb", func() {
			defer all.Done()
			b.decide(ctx, g)
		})
	}
	b.decide(ctx, groups[0])
	all.Wait()
}

// A group are requests of a slice that have to do with each other: each shares a key with another
// one.
type group struct {
	asks []ask // in the order of the slice
	keys []limit.Key
}

// An ask is a request and where its answer goes.
type ask struct {
	at  int // in the slice
	req *limit.Request
	out *limit.Verdict
}

// divide makes groups of the requests, and answers those that cannot be decided.
func (b *Backend) divide(reqs []limit.Request, out []limit.Verdict) (all []*group) {
	of := map[limit.Key]*group{}
	for i := range reqs {
		req := &reqs[i]
		if err := b.caps.CheckRequest(req); err != nil {
			backends.Fail(out[i:i+1], err)
			continue
		}
		// Until it is decided, nobody knows what becomes of it.
		backends.Fail(out[i:i+1], errPanic)
		var g *group
		for j := range req.Ops {
			k := req.Ops[j].Key
			switch other := of[k]; {
			case other == nil && g == nil:
				g = &group{}
				all = append(all, g)
				fallthrough
			case other == nil:
				of[k] = g
				g.keys = append(g.keys, k)
			case g == nil:
				g = other
			case g != other:
				g.join(other, of)
			}
		}
		g.asks = append(g.asks, ask{i, req, &out[i]})
	}
	all = slices.DeleteFunc(all, func(g *group) bool { return len(g.asks) == 0 })
	for _, g := range all {
		slices.SortFunc(g.asks, func(a, b ask) int { return cmp.Compare(a.at, b.at) })
	}
	return all
}

// join moves what other has into g.
func (g *group) join(other *group, of map[limit.Key]*group) {
	for _, k := range other.keys {
		of[k] = g
	}
	g.keys, g.asks = append(g.keys, other.keys...), append(g.asks, other.asks...)
	other.keys, other.asks = nil, nil
}

// decide answers a group. What has more keys than DynamoDB writes in one step takes several, one after
// the other.
func (b *Backend) decide(ctx context.Context, g *group) {
	for rest := g.asks; len(rest) > 0; {
		n := fits(rest, len(g.keys))
		b.decideOnce(ctx, rest[:n])
		rest = rest[n:]
	}
}

// fits is how many of the requests have no more keys than maxWrite together, at least one.
func fits(asks []ask, keys int) int {
	if keys <= maxWrite {
		return len(asks)
	}
	seen := map[limit.Key]bool{}
	for i := range asks {
		for j := range asks[i].req.Ops {
			seen[asks[i].req.Ops[j].Key] = true
		}
		if len(seen) > maxWrite {
			return max(i, 1)
		}
	}
	return len(asks)
}

// decideOnce decides requests in one step. Those that meet an item which is not headgate's fail, and
// the others are decided without them.
func (b *Backend) decideOnce(ctx context.Context, asks []ask) {
	for len(asks) > 0 {
		d := decision{b: b}
		for _, a := range asks {
			d.reqs, d.out = append(d.reqs, a.req), append(d.out, a.out)
		}
		if err := d.run(ctx); err != nil {
			for _, a := range asks {
				a.out.Fail(err)
			}
			return
		}
		if d.bad == nil {
			return
		}
		var rest []ask
		for _, a := range asks {
			if err := d.bad.Of(a.req); err != nil {
				a.out.Fail(backends.Unreadable(err))
			} else {
				rest = append(rest, a)
			}
		}
		asks = rest
	}
}
