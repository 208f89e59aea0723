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
		if d.policies == nil {
			continue
		}
		recorder := d.policies.recorder(b.policies, d.Entries, int(d.decider))
		if recorder == nil {
			continue
		}
		remaining, most := int64(0), int64(0)
		if d.Counted {
			remaining, most = c.Verdict.Outcomes[d.First].Remaining, c.views[d.First].Limit.Capacity()
		}
		b.byPolicy.add(recorder, d.Outcome, remaining, most)
	}
}

// policyRecorders has the recorders of one rule, and of those that take its place under the same
// label. Each is made when a policy first decides.
type policyRecorders struct {
	make   func(policy string) func() *policySeries
	forget func(policy string)
	rule   func() *policySeries
	keys   func() *policySeries
	asked  *policies.Patterns

	mu    sync.RWMutex
	byKey map[string]*policySeries
	swept uint64 // number of the snapshot by which byKey was tidied up last
}

func newPolicyRecorders(domain, rule string, conf *Config) *policyRecorders {
	r := &policyRecorders{asked: conf.PolicyMetrics, byKey: map[string]*policySeries{}}
	r.make = func(policy string) func() *policySeries {
		return sync.OnceValue(func() *policySeries { return conf.Metrics.policy(domain, rule, policy) })
	}
	r.forget = func(policy string) { conf.Metrics.forgetPolicy(domain, rule, policy) }
	r.rule, r.keys = r.make(PolicyOfRule), r.make(PolicyOfKeys)
	return r
}

// of returns the recorder of the policy of a request's own key, which is one of s.
func (r *policyRecorders) of(key []byte, s *policies.Snapshot) *policySeries {
	if !r.asked.Match(key) {
		return r.keys()
	}
	r.mu.RLock()
	own, full := r.byKey[string(key)], r.full(s)
	r.mu.RUnlock()
	switch {
	case own != nil:
		return own
	case full:
		return r.keys()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if own = r.byKey[string(key)]; own == nil && r.room(s) {
		if own = r.make(string(key))(); own != nil {
			r.byKey[string(key)] = own
		}
	}
	if own == nil {
		return r.keys()
	}
	return own
}

// full reports whether it is known that each place has a policy that is there still.
func (r *policyRecorders) full(s *policies.Snapshot) bool {
	return len(r.byKey) >= maxKeyPolicies && r.swept == s.Number()
}

// room makes room in the places of policies that were removed, and reports whether there is some.
func (r *policyRecorders) room(s *policies.Snapshot) bool {
	if len(r.byKey) >= maxKeyPolicies && !r.full(s) {
		r.swept = s.Number()
		for key := range r.byKey {
			if _, ok := s.Find([]byte(key)); !ok {
				delete(r.byKey, key)
				r.forget(key)
			}
		}
	}
	return len(r.byKey) < maxKeyPolicies
}
