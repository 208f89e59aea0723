package rulefile

import (
	"cmp"
	"math"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/units"
	"github.com/headgate-rls/headgate/limit"
)

// Bounds of rules for requests in flight.
const (
	maxTiers  = 32
	maxDelay  = 10 * time.Minute
	minStatus = 400
	maxStatus = 599
)

// A tierNode is a tier and where it was read.
type tierNode struct {
	descriptors.Tier
	at *yaml.Node
}

// concurrencyOf reads what a rule says of requests in flight.
func (l *loader) concurrencyOf(f fields, t *twig, r *descriptors.Terms) {
	list := f.get("concurrency")
	if list == nil {
		for _, name := range []string{"lease_ttl", "reject_hold", "release"} {
			if n := f.get(name); n != nil {
				l.errorf(n, t, "%s needs concurrency in the same rule", name)
			}
		}
		return
	}
	if isNull(list) || list.Kind == yaml.SequenceNode && len(list.Content) == 0 {
		l.errorf(list, t, "concurrency is empty; leave it out to limit nothing")
		return
	}
	if r.Unlimited {
		l.errorf(list, t, "concurrency and unlimited: true contradict each other")
		return
	}
	c := &descriptors.Concurrency{KeyPart: limit.Concurrency.KeyLetter()}
	var tiers []tierNode
	if !l.Clean(func() {
		tiers = l.tiers(list, t)
		l.lease(f, t, c)
	}) {
		return
	}
	if c.Limit = l.inFlight(list, f, t, c, tiers); c.Limit == nil {
		return
	}
	if n := f.get("release"); c.ByHits && (f.get("limits") != nil || f.get("rate_limit") != nil) {
		l.warnf(n, t, "with release: hits a request gives back at its end what it took of the rule's other limits, too; put them into a rule of their own")
	}
	for i := range tiers {
		c.Tiers = append(c.Tiers, tiers[i].Tier)
	}
	r.Concurrency = c
}

// inFlight checks the tiers as a whole and makes the limit that they stand for.
func (l *loader) inFlight(list *yaml.Node, f fields, t *twig, c *descriptors.Concurrency, tiers []tierNode) *limit.Limit {
	first := slices.IndexFunc(tiers, func(t tierNode) bool { return t.Status != 0 })
	for i := range tiers {
		if i > 0 && tiers[i].Threshold == tiers[i-1].Threshold {
			l.errorf(tiers[i].at, t, "two tiers have the threshold %d", tiers[i].Threshold)
			return nil
		}
		if tiers[i].Status != 0 && tiers[i].Delay > 0 {
			l.warnf(tiers[i].at, t, "the tier above %d refuses, and does so at once: its delay is ignored", tiers[i].Threshold)
		}
		if first < 0 || i <= first {
			continue
		}
		if tiers[i].Status == 0 {
			l.errorf(tiers[i].at, t, "the tier above %d only delays, but the one above %d refuses already; give it a statusCode, or a lower threshold",
				tiers[i].Threshold, tiers[first].Threshold)
			return nil
		}
		if c.Hold == 0 {
			l.warnf(tiers[i].at, t, "the tier above %d is never reached: requests are refused from %d on, and refused ones do not count; "+
				"reject_hold: 5s would count them for a while", tiers[i].Threshold, tiers[first].Threshold)
		}
	}
	most := int64(limit.MaxInFlight)
	if first >= 0 {
		most = tiers[first].Threshold
	} else if n := f.get("reject_hold"); n != nil {
		l.errorf(n, t, "reject_hold needs a tier that refuses")
		return nil
	}
	return l.make(list, t, limit.Spec{Algorithm: limit.Concurrency, Max: most, Window: c.LeaseTTL, Hold: c.Hold})
}

// lease reads how long requests count.
func (l *loader) lease(f fields, t *twig, c *descriptors.Concurrency) {
	if c.LeaseTTL = l.opt.DefaultLeaseTTL; c.LeaseTTL == 0 {
		c.LeaseTTL = descriptors.DefaultLeaseTTL
	}
	if n := f.get("lease_ttl"); n != nil {
		var ok bool
		c.LeaseTTL, ok = l.duration(n, t, "lease_ttl")
		if ok && (c.LeaseTTL < limit.MinWindow || c.LeaseTTL > limit.MaxWindow) {
			l.errorf(n, t, "lease_ttl %s is outside %v to 10 years", units.Format(c.LeaseTTL), limit.MinWindow)
		}
	}
	if n := f.get("release"); n != nil {
		i, _ := l.word(n, t, "release", "lease", "hits")
		c.ByHits = i == 1
	}
	n := f.get("reject_hold")
	switch {
	case c.ByHits && n != nil:
		l.errorf(n, t, "reject_hold has no place beside release: hits, where refused requests count until their own end")
	case c.ByHits:
		c.Hold = c.LeaseTTL
	case n != nil:
		c.Hold, _ = l.duration(n, t, "reject_hold")
		if c.Hold > c.LeaseTTL {
			l.errorf(n, t, "reject_hold %s is longer than the lease_ttl, %s", units.Format(c.Hold), units.Format(c.LeaseTTL))
		}
	}
}

// tiers reads the list of tiers and returns them ascending by threshold.
func (l *loader) tiers(list *yaml.Node, t *twig) []tierNode {
	var tiers []tierNode
	l.list(list, t, "concurrency", func(n *yaml.Node) {
		if len(tiers) > maxTiers {
			return
		}
		if len(tiers) == maxTiers {
			l.errorf(n, t, "a rule has at most %d tiers", maxTiers)
		}
		tier := l.tier(n, t)
		if tier.Name != "" && slices.ContainsFunc(tiers, func(o tierNode) bool { return o.Name == tier.Name }) {
			l.errorf(n, t, "two tiers are called %q", tier.Name)
		}
		tiers = append(tiers, tierNode{tier, n})
	})
	slices.SortStableFunc(tiers, func(a, b tierNode) int { return cmp.Compare(a.Threshold, b.Threshold) })
	return tiers
}

// tier reads one entry of concurrency.
func (l *loader) tier(n *yaml.Node, t *twig) descriptors.Tier {
	var tier descriptors.Tier
	f, ok := l.fields(n, levelTier, t)
	if !ok {
		return tier
	}
	tier.Name = l.name(f.get("name"), t)
	if v := f.get("threshold"); v != nil {
		tier.Threshold, _ = l.integer(v, t, "threshold", 0, limit.MaxInFlight)
	} else {
		l.errorf(n, t, "the tier has no threshold; write how many requests may be in flight before it applies")
	}
	if v := f.get("response"); v != nil && !isNull(v) {
		l.tierResponse(v, t, &tier)
	} else {
		l.errorf(n, t, "the tier has no response; give it a statusCode from %d to %d, or a delay", minStatus, maxStatus)
	}
	return tier
}

// tierResponse reads what a tier does.
func (l *loader) tierResponse(n *yaml.Node, t *twig, tier *descriptors.Tier) {
	f, ok := l.fields(n, levelTierResponse, t)
	if !ok {
		return
	}
	status, delay := f.get("statusCode"), f.get("delay")
	if status != nil {
		tier.Status = l.status(status, t)
	}
	if delay != nil {
		tier.Delay = l.delay(delay, t)
	}
	if v := f.get("content"); v != nil {
		tier.Content, _ = l.text(v, t, "content", maxContent)
	}
	if v := f.get("headers"); v != nil {
		tier.Headers = l.headers(v, t)
	}
	if status != nil {
		return
	}
	for _, name := range []string{"content", "headers"} {
		if v := f.get(name); v != nil {
			l.errorf(v, t, "%s needs a statusCode from %d to %d: a tier without one does not answer", name, minStatus, maxStatus)
		}
	}
	if delay == nil {
		l.errorf(n, t, "the tier does nothing; give it a statusCode from %d to %d, or a delay", minStatus, maxStatus)
	}
}

func (l *loader) status(n *yaml.Node, t *twig) int {
	v, ok := l.integer(n, t, "statusCode", 0, math.MaxInt32)
	switch {
	case !ok:
	case v >= 200 && v < minStatus:
		l.errorf(n, t, "statusCode must be %d to %d, not %d; a tier with a delay and no statusCode lets requests pass", minStatus, maxStatus, v)
	case v < minStatus || v > maxStatus:
		l.errorf(n, t, "statusCode %d is outside %d to %d", v, minStatus, maxStatus)
	}
	return int(v)
}

// delay reads "1s", or {exact: 1000} in milliseconds.
func (l *loader) delay(n *yaml.Node, t *twig) time.Duration {
	if n.Kind != yaml.MappingNode {
		d, _ := l.duration(n, t, "delay")
		if d > maxDelay || d%time.Millisecond != 0 {
			l.errorf(n, t, "delay %s is not whole milliseconds up to %s", units.Format(d), units.Format(maxDelay))
		}
		return d
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
	ms, _ := l.integer(exact, t, "exact", 0, maxDelay.Milliseconds())
	return time.Duration(ms) * time.Millisecond
}
