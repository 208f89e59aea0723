package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// A policySeries is what one policy decides under the rules of one label.
type policySeries struct {
	of      *Metrics
	labels  [3]string                      // domain, rule, policy
	decided atomic.Pointer[metrics.Series] // by Outcome; nil while there is no room

	mu   sync.Mutex
	left lowest
}

// policy returns the series of a policy under the rules of one label; nil, which is not to be recorded in, without
// metrics. It counts for nobody if there is no such rule any more.
func (m *Metrics) policy(domain, rule, policy string) *policySeries {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	label := ruleLabel{domain, rule}
	l := m.byLabel[label]
	if l != nil && l.policies[policy] != nil {
		return l.policies[policy]
	}
	p := &policySeries{of: m, labels: [3]string{domain, rule, policy}}
	if l == nil || l.policied == 0 {
		p.decided.Store(new(metrics.Series))
		return p
	}
	l.policies[policy] = p
	m.giveRoom(p)
	return p
}

// giveRoom has a policy count in series of its own if there is room.
func (m *Metrics) giveRoom(p *policySeries) {
	if p.decided.Load() == nil && m.bounds.policies.Take(1) {
		p.decided.Store(m.byPolicy.Hold(p.labels[:]...))
	}
}

// forgetPolicy drops the series of a policy that was removed.
func (m *Metrics) forgetPolicy(domain, rule, policy string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.byLabel[ruleLabel{domain, rule}]; l != nil && l.policies[policy] != nil {
		m.dropPolicy(l, policy)
	}
}

func (m *Metrics) dropPolicy(l *labelSeries, policy string) {
	if s := l.policies[policy].decided.Load(); s != nil {
		m.byPolicy.Drop(s)
		m.bounds.policies.GiveBack(1)
	}
	delete(l.policies, policy)
}

// record adds what the policy has decided.
func (p *policySeries) record(t *PolicyTally) {
	if p.of.recorded != nil {
		p.of.recorded(p, t)
	}
	to := p
	if p.decided.Load() == nil {
		to = p.of.rest()
	}
	decided := to.decided.Load()
	for o, n := range t.Outcomes {
		if n > 0 {
			decided.At(o).Add(n)
		}
	}
	if t.Limit > 0 {
		now := time.Now()
		to.mu.Lock()
		to.left.note(now, t.Level)
		to.mu.Unlock()
	}
}

// eachLevel returns what emits a figure of the lowest level of each policy.
func (m *Metrics) eachLevel(figure func(Level) int64) func(metrics.Emit) {
	emitOne := func(p *policySeries, emit metrics.Emit) {
		p.mu.Lock()
		left, ok := p.left.get(time.Now())
		p.mu.Unlock()
		if ok {
			emit(p.labels[:], float64(figure(left)), nil)
		}
	}
	return func(emit metrics.Emit) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, l := range m.byLabel {
			for _, p := range l.policies {
				emitOne(p, emit)
			}
		}
		if !m.bounds.policies.Free() {
			emitOne(m.rest(), emit)
		}
	}
}

// lowestOver is for how long at least a lowest keeps what it has seen: longer than most pauses
// between scrapes, so that what was low between two of them is seen.
const lowestOver = time.Minute

// A lowest has the lowest level of this stretch of time and of the one before.
type lowest struct {
	stretch     int64
	now, before Level
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
		l.before = Level{}
	}
	l.stretch, l.now = stretch, Level{}
}

func (l *lowest) note(at time.Time, seen Level) {
	if l.turn(at); seen.Below(l.now) {
		l.now = seen
	}
}

// get returns the lowest level noted in this stretch and the one before. It reports false if there is
// none.
func (l *lowest) get(at time.Time) (lowest Level, ok bool) {
	l.turn(at)
	lowest = l.now
	if l.before.Limit > 0 && l.before.Below(lowest) {
		lowest = l.before
	}
	return lowest, lowest.Limit > 0
}
