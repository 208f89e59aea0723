package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/policies"
)

// A policySeries is what one policy decides under the rules of one label.
type policySeries struct {
	of      *Metrics
	own     bool                           // of one key, not of a name; guarded by labelSeries.mu
	labels  [3]string                      // domain, rule, policy
	decided atomic.Pointer[metrics.Series] // by Outcome; nil while there is no room

	mu   sync.Mutex
	left lowest
}

// Whose a policy is.
const (
	ofOneKey = true
	ofMany   = false
)

// policy returns the series of a policy under a rule's label. A key's own policy shares one with others if the rule
// has too many, unless s says that some of them were removed. What it counts is not reported if the rules of the label
// are gone.
func (m *Metrics) policy(l *labelSeries, policy []byte, own bool, s *policies.Snapshot) *policySeries {
	l.mu.RLock()
	p, full := l.policies[string(policy)], l.keys >= maxKeyPolicies && l.swept == s.Number()
	found := p != nil && (own || !p.own)
	l.mu.RUnlock()
	switch {
	case found:
		return p
	case own && full:
		return m.policy(l, []byte(PolicyOfKeys), ofMany, s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if own && l.policies[string(policy)] == nil && !m.roomForKey(l, s) {
		policy, own = []byte(PolicyOfKeys), ofMany
	}
	if p = l.policies[string(policy)]; p != nil {
		if p.own && !own { // whose views keep the series
			p.own = false
			l.keys--
		}
		return p
	}
	p = &policySeries{of: m, own: own, labels: [3]string{l.label.domain, l.label.path, string(policy)}}
	if l.policied == 0 {
		p.decided.Store(new(metrics.Series))
		return p
	}
	l.policies[p.labels[2]] = p
	if own {
		l.keys++
	}
	m.giveRoom(p)
	return p
}

// roomForKey reports whether the rule has room for the policy of one more key. If not, it drops the series of policies
// that were removed. m and l are locked.
func (m *Metrics) roomForKey(l *labelSeries, s *policies.Snapshot) bool {
	if l.keys >= maxKeyPolicies && l.swept != s.Number() {
		l.swept = s.Number()
		for key, p := range l.policies {
			if _, ok := s.Find([]byte(key)); !ok && p.own {
				m.dropPolicy(l, key)
			}
		}
	}
	return l.keys < maxKeyPolicies
}

// giveRoom gives a policy series of its own if there is room.
func (m *Metrics) giveRoom(p *policySeries) {
	if p.decided.Load() == nil && m.bounds.policies.Take(1) {
		p.decided.Store(m.byPolicy.Hold(p.labels[:]...))
	}
}

// dropPolicy drops the series of a policy. m and l are locked.
func (m *Metrics) dropPolicy(l *labelSeries, policy string) {
	p := l.policies[policy]
	if s := p.decided.Load(); s != nil {
		m.byPolicy.Drop(s)
		m.bounds.policies.GiveBack(1)
	}
	delete(l.policies, policy)
	if p.own {
		l.keys--
	}
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
	l.turn(at)
	if seen.Below(l.now) {
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

// What metrics call the policy of decisions that none of one name made. No key has such a name.
const (
	PolicyOfRule = "(rule)" // there is no policy: the rule's own limit
	PolicyOfKeys = "(keys)" // policies of keys that have no series of their own
)

// maxKeyPolicies bounds the keys of one rule whose policies are recorded one by one.
const maxKeyPolicies = 100

// A PolicyTally counts the descriptors of a slice that one policy decided, by outcome.
type PolicyTally struct {
	Outcomes [NumOutcomes]int64
	Level    // the lowest one of the counters that were asked
}

// A Level says how many units of a limit are left. Limit is 0 if that is not known.
type Level struct{ Remaining, Limit int64 }

// Below reports whether a smaller part of the limit is left than of other's. Every level is below
// an unknown one.
func (l Level) Below(other Level) bool {
	return other.Limit == 0 || float64(l.Remaining)*float64(other.Limit) < float64(other.Remaining)*float64(l.Limit)
}

// add adds a descriptor.
func (t *PolicyTally) add(o Outcome, remaining, most int64) {
	t.Outcomes[o]++
	if l := (Level{remaining, most}); most > 0 && l.Below(t.Level) {
		t.Level = l
	}
}

// policyTallies adds up what the calls of a slice record, for the same reason as a tally.
type policyTallies struct {
	list [4]struct {
		of *policySeries
		PolicyTally
	}
	used int
}

// add adds a descriptor that ended with an outcome.
func (t *policyTallies) add(of *policySeries, o Outcome, remaining, most int64) {
	for i := range t.used {
		if t.list[i].of == of {
			t.list[i].add(o, remaining, most)
			return
		}
	}
	if t.used == len(t.list) {
		t.flush()
	}
	t.list[t.used].of = of
	t.list[t.used].add(o, remaining, most)
	t.used++
}

// flush records what was added.
func (t *policyTallies) flush() {
	if t.used == 0 {
		return
	}
	for i := range t.used {
		t.list[i].of.record(&t.list[i].PolicyTally)
	}
	*t = policyTallies{}
}

// countByPolicy counts each descriptor for the policy that decided it.
func countByPolicy(b *Batch, c *Call) {
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if d.policies == nil || d.policies.own.series.byLabel == nil {
			continue
		}
		remaining, most := int64(0), int64(0)
		if d.Counted {
			remaining, most = c.Verdict.Outcomes[d.First].Remaining, c.views[d.First].Limit.Capacity()
		}
		by := d.policies.countsIn(b.policies, d.Entries, int(d.decider))
		b.byPolicy.add(by, d.Outcome, remaining, most)
	}
}
