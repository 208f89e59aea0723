package telemetry

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/ratelimit"
)

// Series whose labels name rules are bounded, and go when their rule does.
const (
	// maxRules bounds the labels that come from rules; the rest is counted under
	// rule "(other)".
	maxRules = 10_000
	// maxValues bounds the labels with values that clients choose, which rules
	// with detailed_metric and value_to_metric have; the rest is counted under
	// the rule's own label. They take nothing from maxRules.
	maxValues = 10_000
	// maxRuleValues bounds those of one rule.
	maxRuleValues = maxValues / 2

	otherRule = "(other)"
)

// A ruleKey names a rule in labels.
type ruleKey struct{ domain, rule string }

func (k ruleKey) of() ruleKey { return k }

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
	ruleBudget struct{ ruleKey } // not labels: the budget of a rule's values
)

// ofRule are labels of any of these kinds.
type ofRule interface{ of() ruleKey }

// A budget bounds a number of series.
type budget struct {
	most int64
	used atomic.Int64
}

func (b *budget) take() bool {
	if b.used.Add(1) <= b.most {
		return true
	}
	b.used.Add(-1)
	return false
}

// A series is what is kept under some labels.
type series struct {
	counters any
	budgets  []*budget
	drop     func()
}

// kept returns what is kept under labels, nil if there is nothing.
func (m *Metrics) kept(labels ofRule) any {
	if s, ok := m.known.Load(labels); ok {
		return s.(*series).counters
	}
	return nil
}

// keep keeps what make returns under labels, within budgets. It returns what is
// kept, or nil if there is no room.
func (m *Metrics) keep(labels ofRule, make func() (counters any, drop func()), budgets ...*budget) any {
	for i, b := range budgets {
		if !b.take() {
			giveBack(budgets[:i])
			return nil
		}
	}
	s := &series{budgets: budgets}
	s.counters, s.drop = make()
	if old, loaded := m.known.LoadOrStore(labels, s); loaded {
		giveBack(budgets)
		return old.(*series).counters
	}
	return s.counters
}

func giveBack(budgets []*budget) {
	for _, b := range budgets {
		b.used.Add(-1)
	}
}

// dropGone drops the series of rules that are not wanted any more. Calls that
// began before still count for them, which no scrape shows.
func (m *Metrics) dropGone(wanted func(labels ofRule) bool) {
	m.known.Range(func(labels, kept any) bool {
		if !wanted(labels.(ofRule)) && m.known.CompareAndDelete(labels, kept) {
			s := kept.(*series)
			s.drop()
			giveBack(s.budgets)
		}
		return true
	})
}

// A lazyCounter becomes a series when it is first counted up, so that a rule
// has no series for what never happened to it.
type lazyCounter struct {
	vec    *prometheus.CounterVec
	labels [3]string

	mu   sync.Mutex
	gone bool
	c    atomic.Pointer[prometheus.Counter]
}

func (l *lazyCounter) Inc() {
	c := l.c.Load()
	if c == nil {
		c = l.make()
	}
	(*c).Inc()
}

func (l *lazyCounter) make() *prometheus.Counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.c.Load(); c != nil {
		return c
	}
	var c prometheus.Counter
	if l.gone {
		c = prometheus.NewCounter(prometheus.CounterOpts{Name: "gone"}) // which nobody sees
	} else {
		c = l.vec.WithLabelValues(l.labels[:]...)
	}
	l.c.Store(&c)
	return &c
}

func (l *lazyCounter) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	l.vec.DeleteLabelValues(l.labels[:]...)
}

// Rule implements [ratelimit.Metrics].
func (m *Metrics) Rule(domain, rule string) *ratelimit.RuleCounters {
	return staticSeries(m, ruleLabels{ruleKey{domain, rule}}, ruleLabels{ruleKey{"", otherRule}}, func(l ruleLabels) (*ratelimit.RuleCounters, func()) {
		return m.decided(l.domain, l.rule)
	})
}

// Values implements [ratelimit.Metrics].
func (m *Metrics) Values(domain, rule, values string) *ratelimit.RuleCounters {
	key := ruleKey{domain, rule}
	labels := valueLabels{key, values}
	if c := m.kept(labels); c != nil {
		return c.(*ratelimit.RuleCounters)
	}
	of := m.kept(ruleBudget{key})
	if of == nil {
		of = m.keep(ruleBudget{key}, func() (any, func()) { return &budget{most: maxRuleValues}, func() {} })
	}
	c := m.keep(labels, func() (any, func()) { return m.decided(domain, values) }, &m.values, of.(*budget))
	if c == nil {
		return m.Rule(domain, rule)
	}
	return c.(*ratelimit.RuleCounters)
}

// decided returns the counters of decisions under a rule's label.
func (m *Metrics) decided(domain, label string) (*ratelimit.RuleCounters, func()) {
	var c ratelimit.RuleCounters
	for o := range ratelimit.NumOutcomes {
		c[o] = &lazyCounter{vec: m.decisions, labels: [3]string{domain, label, o.String()}}
	}
	return &c, func() { dropAll(c[:]) }
}

// Lease implements [ratelimit.Metrics]. The labels are those of rules, also of
// earlier ones: tokens outlive a change of rules.
func (m *Metrics) Lease(domain, rule string) *ratelimit.LeaseCounters {
	return staticSeries(m, leaseLabels{ruleKey{domain, rule}}, leaseLabels{ruleKey{"", otherRule}}, func(l leaseLabels) (*ratelimit.LeaseCounters, func()) {
		var c ratelimit.LeaseCounters
		for e := range ratelimit.NumLeaseEvents {
			c[e] = started(m.leases, l.domain, l.rule, e.String())
		}
		return &c, func() { dropAll(c[:]) }
	})
}

// Tier implements [ratelimit.Metrics].
func (m *Metrics) Tier(domain, rule, tier string) ratelimit.Counter {
	return staticSeries(m, tierLabels{ruleKey{domain, rule}, tier}, tierLabels{ruleKey{"", otherRule}, ""}, func(l tierLabels) (*lazyCounter, func()) {
		c := started(m.tiers, l.domain, l.rule, l.tier)
		return c, c.drop
	})
}

// Refusals implements [ratelimit.Metrics].
func (m *Metrics) Refusals(domain, rule, limit string) ratelimit.Counter {
	return staticSeries(m, refusalLabels{ruleKey{domain, rule}, limit}, refusalLabels{ruleKey{"", otherRule}, ""}, func(l refusalLabels) (*lazyCounter, func()) {
		c := started(m.refusals, l.domain, l.rule, l.limit)
		return c, c.drop
	})
}

// started returns a counter that is a series from the start, at 0: what is to
// raise an alarm the first time must have been there before.
func started(vec *prometheus.CounterVec, labels ...string) *lazyCounter {
	c := &lazyCounter{vec: vec, labels: [3]string(labels)}
	c.make()
	return c
}

// dropAll drops lazyCounters.
func dropAll(counters []ratelimit.Counter) {
	for _, c := range counters {
		c.(*lazyCounter).drop()
	}
}

// staticSeries returns what is kept under labels that come from rules, made when
// first asked for. Beyond maxRules of them, what is kept under other.
func staticSeries[L ofRule, T any](m *Metrics, labels, other L, make func(L) (T, func())) T {
	if c := m.kept(labels); c != nil {
		return c.(T)
	}
	c := m.keep(labels, func() (any, func()) { return make(labels) }, &m.static)
	if c == nil {
		if c = m.kept(other); c == nil {
			c = m.keep(other, func() (any, func()) { return make(other) })
		}
	}
	return c.(T)
}
