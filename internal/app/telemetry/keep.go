package telemetry

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
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
	// maxPolicies bounds the labels that name policies; the rest is counted under
	// rule "(other)".
	maxPolicies = 10_000

	otherRule = "(other)"
)

// A ruleKey names a rule in labels.
type ruleKey struct{ domain, rule string }

func (k ruleKey) of() ruleKey { return k }

// ofRule are labels of any kind that belong to a rule.
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

func giveBack(budgets []*budget) {
	for _, b := range budgets {
		b.used.Add(-1)
	}
}

// A series is what is kept under some labels.
type series struct {
	counters any
	budgets  []*budget
	drop     func()
}

// A keeper keeps what counts under labels of rules.
type keeper struct {
	known sync.Map     // *series by ofRule
	freed atomic.Int64 // how often series were dropped
	// static is for labels that rules name, values for those that requests do, policies for those
	// that policies do.
	static, values, policies budget

	mu sync.Mutex // held by who adds or drops
}

// kept returns what is kept under labels, nil if there is nothing.
func (k *keeper) kept(labels ofRule) any {
	if s, ok := k.known.Load(labels); ok {
		return s.(*series).counters
	}
	return nil
}

// keep keeps what make returns under labels, within budgets. It returns what is
// kept, or nil if there is no room.
func (k *keeper) keep(labels ofRule, make func() (counters any, drop func()), budgets ...*budget) any {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.kept(labels); old != nil {
		return old
	}
	for i, b := range budgets {
		if !b.take() {
			giveBack(budgets[:i])
			return nil
		}
	}
	s := &series{budgets: budgets}
	s.counters, s.drop = make()
	k.known.Store(labels, s)
	return s.counters
}

// dropGone drops the series of rules that are not wanted any more. Calls that
// began before still count for them, which no scrape shows.
func (k *keeper) dropGone(wanted func(labels ofRule) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known.Range(func(labels, _ any) bool {
		if !wanted(labels.(ofRule)) {
			k.remove(labels.(ofRule))
		}
		return true
	})
}

// drop drops what is kept under labels, if there is something.
func (k *keeper) drop(labels ofRule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(labels)
}

// remove is drop for who holds the lock.
func (k *keeper) remove(labels ofRule) {
	if kept, ok := k.known.LoadAndDelete(labels); ok {
		s := kept.(*series)
		s.drop()
		giveBack(s.budgets)
		k.freed.Add(1)
	}
}

// static returns what is kept under labels that come from rules, made when first
// asked for. Beyond maxRules of them, what is kept under other; own is then false.
func static[L ofRule, T any](k *keeper, labels, other L, make func(L) (T, func())) (counters T, own bool) {
	return within(k, &k.static, labels, other, make)
}

// within is static with a budget.
func within[L ofRule, T any](k *keeper, b *budget, labels, other L, make func(L) (T, func())) (counters T, own bool) {
	if c := k.kept(labels); c != nil {
		return c.(T), true
	}
	c := k.keep(labels, func() (any, func()) { return make(labels) }, b)
	if c != nil {
		return c.(T), true
	}
	if c = k.kept(other); c == nil {
		c = k.keep(other, func() (any, func()) { return make(other) })
	}
	return c.(T), false
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

// started returns a counter that is a series from the start, at 0: what is to
// raise an alarm the first time must have been there before.
func started(vec *prometheus.CounterVec, labels ...string) *lazyCounter {
	c := &lazyCounter{vec: vec, labels: [3]string(labels)}
	c.make()
	return c
}

// Inc implements [ratelimit.Counter].
func (l *lazyCounter) Inc() { l.Count(1) }

// Count implements [ratelimit.HitCounter].
func (l *lazyCounter) Count(n int64) {
	c := l.c.Load()
	if c == nil {
		c = l.make()
	}
	(*c).Add(float64(n))
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
