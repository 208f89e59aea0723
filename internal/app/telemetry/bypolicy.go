package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/ratelimit"
)

// byPolicy publishes what policies decide.
type byPolicy struct {
	decisions, remaining, limit *prometheus.Desc

	mu   sync.Mutex
	list map[*policySeries]bool
}

type policyLabels struct {
	ruleKey
	policy string
}

// A policySeries is what one policy decides under one rule.
type policySeries struct {
	policyLabels
	decided [ratelimit.NumOutcomes]atomic.Int64

	mu   sync.Mutex
	left lowest
}

// Policy implements [ratelimit.Metrics].
func (m *Metrics) Policy(domain, rule, policy string) ratelimit.PolicyRecorder {
	labels := policyLabels{ruleKey{domain, rule}, policy}
	s, g := lodge(m, labels, func() (*policySeries, bool) {
		return within(&m.keeper, &m.keeper.policies, labels, policyLabels{ruleKey{"", otherRule}, ""}, m.byPolicy.add)
	})
	if g == nil {
		return s
	}
	return policyOf{g}
}

// ForgetPolicy implements [ratelimit.Metrics].
func (m *Metrics) ForgetPolicy(domain, rule, policy string) {
	m.keeper.drop(policyLabels{ruleKey{domain, rule}, policy})
}

func (p *byPolicy) add(labels policyLabels) (s *policySeries, drop func()) {
	s = &policySeries{policyLabels: labels}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.list == nil {
		p.list = map[*policySeries]bool{}
	}
	p.list[s] = true
	return s, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.list, s)
	}
}

// Record implements [ratelimit.PolicyRecorder].
func (s *policySeries) Record(t *ratelimit.PolicyTally) {
	for o, n := range t.Outcomes {
		if n > 0 {
			s.decided[o].Add(n)
		}
	}
	if t.Limit > 0 {
		now := time.Now()
		s.mu.Lock()
		s.left.note(now, t.Level)
		s.mu.Unlock()
	}
}

// Describe implements [prometheus.Collector].
func (p *byPolicy) Describe(ch chan<- *prometheus.Desc) {
	ch <- p.decisions
	ch <- p.remaining
	ch <- p.limit
}

// Collect implements [prometheus.Collector].
func (p *byPolicy) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.list {
		p.collect(ch, s)
	}
}

func (p *byPolicy) collect(ch chan<- prometheus.Metric, s *policySeries) {
	for o := range ratelimit.NumOutcomes {
		// A first refusal must be an increase: it was 0 before.
		if n := s.decided[o].Load(); n > 0 || o == ratelimit.OutcomeOK || o == ratelimit.OutcomeOverLimit {
			ch <- prometheus.MustNewConstMetric(p.decisions, prometheus.CounterValue, float64(n), s.domain, s.rule, s.policy, o.String())
		}
	}
	s.mu.Lock()
	left, ok := s.left.get(time.Now())
	s.mu.Unlock()
	if ok {
		ch <- prometheus.MustNewConstMetric(p.remaining, prometheus.GaugeValue, float64(left.Remaining), s.domain, s.rule, s.policy)
		ch <- prometheus.MustNewConstMetric(p.limit, prometheus.GaugeValue, float64(left.Limit), s.domain, s.rule, s.policy)
	}
}

// lowestOver is for how long at least a lowest keeps what it has seen: longer than most pauses
// between scrapes, so that what was low between two of them is seen.
const lowestOver = time.Minute

// A lowest has the lowest level of this stretch of time and of the one before.
type lowest struct {
	stretch     int64
	now, before ratelimit.Level
}

// turn makes the stretch of an instant the present one. A clock that steps forgets levels.
func (l *lowest) turn(at time.Time) {
	stretch := at.UnixNano() / int64(lowestOver)
	switch {
	case stretch == l.stretch:
		return
	case stretch == l.stretch+1:
		l.before = l.now
	default:
		l.before = ratelimit.Level{}
	}
	l.stretch, l.now = stretch, ratelimit.Level{}
}

func (l *lowest) note(at time.Time, seen ratelimit.Level) {
	if l.turn(at); seen.Below(l.now) {
		l.now = seen
	}
}

// get returns the lowest level noted in this stretch and the one before. It reports false if there is
// none.
func (l *lowest) get(at time.Time) (lowest ratelimit.Level, ok bool) {
	l.turn(at)
	lowest = l.now
	if l.before.Limit > 0 && l.before.Below(lowest) {
		lowest = l.before
	}
	return lowest, lowest.Limit > 0
}
