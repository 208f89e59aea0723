package rulefile

import (
	"cmp"
	"math"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// concurrencyOf reads what a rule says of requests in flight.
func (l *loader) concurrencyOf(f fields, t *twig, r *descriptors.Body) {
	list := f.get("concurrency")
	if list == nil {
		for _, name := range []string{"lease_ttl", "reject_hold", "release"} {
			if n := f.get(name); n != nil {
				l.errorf(n, t, "%s needs concurrency in the same rule", name)
			}
		}
		return
	}
	c := &descriptors.ConcurrencySpec{Place: l.place(list), Fields: written(f)}
	if !isNull(list) && !l.Clean(func() {
		l.list(list, t, "concurrency", func(n *yaml.Node) {
			var tier descriptors.TierSpec
			ok := l.Clean(func() { tier = l.tier(n, t) })
			tier.Broken = !ok
			c.Tiers = append(c.Tiers, tier)
		})
	}) && len(c.Tiers) == 0 {
		return
	}
	c.Broken = !l.Clean(func() { l.lease(f, t, c) })
	r.Concurrency = c
}

// lease reads how long requests count.
func (l *loader) lease(f fields, t *twig, c *descriptors.ConcurrencySpec) {
	c.LeaseTTL = cmp.Or(l.opt.DefaultLeaseTTL, descriptors.DefaultLeaseTTL)
	if n := f.get("lease_ttl"); n != nil {
		c.LeaseTTL = l.duration(n, t, "lease_ttl")
	}
	i, _ := l.word(f.get("release"), t, "release", "lease", "hits")
	c.ByHits = i == 1
	if n := f.get("reject_hold"); n != nil {
		hold := l.duration(n, t, "reject_hold")
		c.Hold = &hold
	}
}

// tier reads one entry of concurrency.
func (l *loader) tier(n *yaml.Node, t *twig) descriptors.TierSpec {
	tier := descriptors.TierSpec{Place: l.place(n)}
	f, ok := l.fields(n, levelTier, t)
	if !ok {
		return tier
	}
	tier.Fields = written(f)
	tier.Name, _ = l.text(f.get("name"), t, "name")
	if v := f.get("threshold"); v != nil {
		tier.Threshold, _ = l.number(v, t, "threshold")
	} else {
		l.errorf(n, t, "the tier has no threshold; write how many requests may be in flight before it applies")
	}
	if v := f.get("response"); !isNull(v) {
		l.tierResponse(v, t, &tier)
	} else {
		l.errorf(n, t, "the tier has no response; give it a statusCode or a delay")
	}
	return tier
}

// tierResponse reads what a tier does.
func (l *loader) tierResponse(n *yaml.Node, t *twig, tier *descriptors.TierSpec) {
	f, ok := l.fields(n, levelTierResponse, t)
	if !ok {
		return
	}
	status, delay := f.get("statusCode"), f.get("delay")
	if status != nil {
		v := l.positive(status, t, "statusCode")
		tier.Status = int(min(max(v, math.MinInt32), math.MaxInt32))
	}
	if delay != nil {
		tier.Delay = l.delay(delay, t)
	}
	if status == nil && delay == nil {
		l.errorf(n, t, "the tier does nothing; give it a statusCode or a delay")
	}
	tier.Content, tier.Headers = l.answer(f, t, &tier.Fields)
}

// delay reads "1s", or {exact: 1000} in milliseconds.
func (l *loader) delay(n *yaml.Node, t *twig) time.Duration {
	if n.Kind != yaml.MappingNode {
		return l.duration(n, t, "delay")
	}
	f, ok := l.fields(n, levelDelay, t)
	if !ok {
		return 0
	}
	exact := f.get("exact")
	if exact == nil {
		l.errorf(n, t, "delay needs exact, in milliseconds; or write delay: 1s")
		return 0
	}
	ms, _ := l.integer(exact, t, "exact", 0, math.MaxInt32) // more could overflow
	return time.Duration(ms) * time.Millisecond
}
