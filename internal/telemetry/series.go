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
	return static(&m.keeper, ruleLabels{ruleKey{domain, rule}}, ruleLabels{ruleKey{"", otherRule}}, func(l ruleLabels) (*ratelimit.RuleCounters, func()) {
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
		return m.Rule(domain, rule)
	}
	return c.(*ratelimit.RuleCounters)
}

// Lease implements [ratelimit.Metrics]. The labels are those of rules, also of
// earlier ones: tokens outlive a change of rules.
func (m *Metrics) Lease(domain, rule string) *leases.Counters {
	return static(&m.keeper, leaseLabels{ruleKey{domain, rule}}, leaseLabels{ruleKey{"", otherRule}}, func(l leaseLabels) (*leases.Counters, func()) {
		var c leases.Counters
		for e := range leases.NumEvents {
			c[e] = started(m.leases, l.domain, l.rule, e.String())
		}
		return &c, func() { dropAll(c[:]) }
	})
}

// Tier implements [ratelimit.Metrics].
func (m *Metrics) Tier(domain, rule, tier string) ratelimit.Counter {
	return static(&m.keeper, tierLabels{ruleKey{domain, rule}, tier}, tierLabels{ruleKey{"", otherRule}, ""}, func(l tierLabels) (*lazyCounter, func()) {
		c := started(m.tiers, l.domain, l.rule, l.tier)
		return c, c.drop
	})
}

// Overflow implements [ratelimit.Metrics].
func (m *Metrics) Overflow(domain, rule, limit string) ratelimit.HitCounter {
	return static(&m.keeper, overflowLabels{ruleKey{domain, rule}, limit}, overflowLabels{ruleKey{"", otherRule}, ""}, func(l overflowLabels) (*lazyCounter, func()) {
		c := &lazyCounter{vec: m.overflow, labels: [3]string{l.domain, l.rule, l.limit}}
		return c, c.drop
	})
}

// Refusals implements [ratelimit.Metrics].
func (m *Metrics) Refusals(domain, rule, limit string) ratelimit.HitCounter {
	return static(&m.keeper, refusalLabels{ruleKey{domain, rule}, limit}, refusalLabels{ruleKey{"", otherRule}, ""}, func(l refusalLabels) (*lazyCounter, func()) {
		c := started(m.refusals, l.domain, l.rule, l.limit)
		return c, c.drop
	})
}
