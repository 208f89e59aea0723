package telemetry

import (
	"sync/atomic"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A guest counts what a rule has no series for: under otherRule, until there is room. The rule's
// user keeps it for as long as the rule does not change, so it looks for room itself, whenever
// series of other rules have gone.
type guest[T any] struct {
	m      *Metrics
	labels ofRule
	find   func() (own T, ok bool) // takes room, if there is some
	other  T

	looked atomic.Int64 // keeper.freed when it looked last
	own    atomic.Pointer[T]
}

// lodge returns what is kept under a rule's labels, or a guest and what it counts under.
func lodge[T any](m *Metrics, labels ofRule, find func() (T, bool)) (T, *guest[T]) {
	freed := m.keeper.freed.Load()
	c, ok := find()
	if ok {
		return c, nil
	}
	g := &guest[T]{m: m, labels: labels, find: find, other: c}
	g.looked.Store(freed)
	return c, g
}

// get returns what to count under now.
func (g *guest[T]) get() T {
	if c := g.own.Load(); c != nil {
		return *c
	}
	freed := g.m.keeper.freed.Load()
	if g.looked.Swap(freed) == freed || !g.m.inForce.has(g.labels) {
		return g.other
	}
	c, ok := g.find()
	if !ok {
		return g.other
	}
	g.own.Store(&c)
	return c
}

// oneOf is a guest that is one counter.
type oneOf struct{ *guest[*lazyCounter] }

// Inc implements [ratelimit.Counter].
func (c oneOf) Inc() { c.get().Inc() }

// Count implements [ratelimit.HitCounter].
func (c oneOf) Count(n int64) { c.get().Count(n) }

// decisionOf is one counter of a guest that is the counters of a rule.
type decisionOf struct {
	*guest[*ratelimit.RuleCounters]
	outcome ratelimit.Outcome
}

// Count implements [ratelimit.HitCounter].
func (c decisionOf) Count(n int64) { c.get()[c.outcome].Count(n) }

// policyOf is a guest that is the series of a policy.
type policyOf struct{ *guest[*policySeries] }

// Record implements [ratelimit.PolicyRecorder].
func (p policyOf) Record(t *ratelimit.PolicyTally) { p.get().Record(t) }

// leaseOf is one counter of a guest that is the counters of a rule's leases.
type leaseOf struct {
	*guest[*leases.Counters]
	event leases.Event
}

// Inc implements [ratelimit.Counter].
func (c leaseOf) Inc() { c.get()[c.event].Inc() }
