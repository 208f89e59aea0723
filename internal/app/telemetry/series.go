package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// The labels of series that belong to a rule.
type (
	ruleLabels  struct{ ruleKey }
	valueLabels struct {
		ruleKey
		values string
	}
	leaseLabels struct{ ruleKey }
	tierLabels  struct {
		ruleKey
		tier string
	}
	refusalLabels struct {
		ruleKey
		limit string
	}
	overflowLabels struct {
		ruleKey
		limit string
	}
	ruleBudget struct{ ruleKey } // not labels: the budget of a rule's values
)

// decided are the counters of decisions by their domain and label. Rules, and
// values of requests under rules, can have the same label: they count together,
// and the series go with the last of them.
type decided struct {
	vec    *prometheus.CounterVec
	shared map[[2]string]*sharing // guarded by keeper.mu
}

type sharing struct {
	counters ratelimit.RuleCounters
	users    int
}

// use returns the counters of a label, and what to call when they are not used
// any more.
func (d *decided) use(domain, rule string) (c *ratelimit.RuleCounters, drop func()) {
	key := [2]string{domain, rule}
	s := d.shared[key]
	if s == nil {
		s = new(sharing)
		for o := range ratelimit.NumOutcomes {
			s.counters[o] = &lazyCounter{vec: d.vec, labels: [3]string{domain, rule, o.String()}}
		}
		if d.shared == nil {
			d.shared = map[[2]string]*sharing{}
		}
		d.shared[key] = s
	}
	s.users++
	return &s.counters, func() {
		if s.users--; s.users == 0 {
			delete(d.shared, key)
			dropAll(s.counters[:])
		}
	}
}

// dropAll drops lazyCounters.
func dropAll[C any](counters []C) {
	for _, c := range counters {
		any(c).(*lazyCounter).drop()
	}
}

// Rule implements [ratelimit.Metrics].
func (m *Metrics) Rule(domain, rule string) *ratelimit.RuleCounters {
	labels := ruleLabels{ruleKey{domain, rule}}
	c, g := lodge(m, labels, func() (*ratelimit.RuleCounters, bool) { return m.rule(labels) })
	if g == nil {
		return c
	}
	var guests ratelimit.RuleCounters
	for o := range ratelimit.NumOutcomes {
		guests[o] = decisionOf{g, o}
	}
	return &guests
}

// rule returns the counters of a rule, or others.
func (m *Metrics) rule(labels ruleLabels) (c *ratelimit.RuleCounters, own bool) {
	return static(&m.keeper, labels, ruleLabels{ruleKey{"", otherRule}}, func(l ruleLabels) (*ratelimit.RuleCounters, func()) {
		return m.decided.use(l.domain, l.rule)
	})
}

// Values implements [ratelimit.Metrics].
func (m *Metrics) Values(domain, rule, values string) *ratelimit.RuleCounters {
	key := ruleKey{domain, rule}
	labels := valueLabels{key, values}
	if c := m.keeper.kept(labels); c != nil {
		return c.(*ratelimit.RuleCounters)
	}
	of := m.keeper.kept(ruleBudget{key})
	if of == nil {
		of = m.keeper.keep(ruleBudget{key}, func() (any, func()) { return &budget{most: maxRuleValues}, func() {} })
	}
	c := m.keeper.keep(labels, func() (any, func()) { return m.decided.use(domain, values) }, &m.keeper.values, of.(*budget))
	if c == nil {
		own, _ := m.rule(ruleLabels{key}) // asked for each time, so it needs no guest
		return own
	}
	return c.(*ratelimit.RuleCounters)
}

// Lease implements [ratelimit.Metrics]. The labels are those of rules, also of
// earlier ones: tokens outlive a change of rules.
func (m *Metrics) Lease(domain, rule string) *leases.Counters {
	labels := leaseLabels{ruleKey{domain, rule}}
	if c := m.keeper.kept(labels); c != nil { // asked for with each event of a token
		return c.(*leases.Counters)
	}
	c, g := lodge(m, labels, func() (*leases.Counters, bool) {
		return static(&m.keeper, labels, leaseLabels{ruleKey{"", otherRule}}, func(l leaseLabels) (*leases.Counters, func()) {
			var c leases.Counters
			for e := range leases.NumEvents {
				c[e] = started(m.leases, l.domain, l.rule, e.String())
			}
			return &c, func() { dropAll(c[:]) }
		})
	})
	if g == nil {
		return c
	}
	var guests leases.Counters
	for e := range leases.NumEvents {
		guests[e] = leaseOf{g, e}
	}
	return &guests
}

// Tier implements [ratelimit.Metrics].
func (m *Metrics) Tier(domain, rule, tier string) ratelimit.Counter {
	labels := tierLabels{ruleKey{domain, rule}, tier}
	return m.lodgeOne(labels, func() (*lazyCounter, bool) {
		return static(&m.keeper, labels, tierLabels{ruleKey{"", otherRule}, ""}, func(l tierLabels) (*lazyCounter, func()) {
			c := started(m.tiers, l.domain, l.rule, l.tier)
			return c, c.drop
		})
	})
}

// Overflow implements [ratelimit.Metrics].
func (m *Metrics) Overflow(domain, rule, limit string) ratelimit.HitCounter {
	labels := overflowLabels{ruleKey{domain, rule}, limit}
	return m.lodgeOne(labels, func() (*lazyCounter, bool) {
		return static(&m.keeper, labels, overflowLabels{ruleKey{"", otherRule}, ""}, func(l overflowLabels) (*lazyCounter, func()) {
			c := &lazyCounter{vec: m.overflow, labels: [3]string{l.domain, l.rule, l.limit}}
			return c, c.drop
		})
	})
}

// Refusals implements [ratelimit.Metrics].
func (m *Metrics) Refusals(domain, rule, limit string) ratelimit.HitCounter {
	labels := refusalLabels{ruleKey{domain, rule}, limit}
	return m.lodgeOne(labels, func() (*lazyCounter, bool) {
		return static(&m.keeper, labels, refusalLabels{ruleKey{"", otherRule}, ""}, func(l refusalLabels) (*lazyCounter, func()) {
			c := started(m.refusals, l.domain, l.rule, l.limit)
			return c, c.drop
		})
	})
}

// A counterOfRule counts in either way.
type counterOfRule interface {
	ratelimit.Counter
	ratelimit.HitCounter
}

// lodgeOne is lodge for one counter.
func (m *Metrics) lodgeOne(labels ofRule, find func() (*lazyCounter, bool)) counterOfRule {
	c, g := lodge(m, labels, find)
	if g == nil {
		return c
	}
	return oneOf{g}
}
