package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"
)

// An Outcome is what became of one descriptor that a rule applies to.
type Outcome uint8

// The outcomes.
const (
	OutcomeOK           Outcome = iota
	OutcomeOverLimit            // refused
	OutcomeShadow               // would have been refused but for shadow mode
	OutcomeUnlimited            // the rule is unlimited or exempts
	OutcomeNoRule               // no rule applies
	OutcomeFailedOpen           // the backend failed, the rule's policy allowed
	OutcomeFailedClosed         // the backend failed, the rule's policy refused
	OutcomeFailedError          // the backend failed, the rule's policy failed the call
	OutcomeOverload             // the backend could not be asked for too many requests, the rule's policy answered
	NumOutcomes
)

// String returns the outcome's metric label.
func (o Outcome) String() string {
	return [NumOutcomes]string{"ok", "over_limit", "shadow_over_limit", "unlimited", "no_rule", "failed_open", "failed_closed", "failed_error", "overload"}[o]
}

// A Counter counts up.
type Counter interface{ Inc() }

// RuleCounters are the counters of one rule, by [Outcome].
type RuleCounters [NumOutcomes]Counter

// Metrics receives what the service counts. Its methods may be called
// concurrently and must bound the number of labels they accept.
type Metrics interface {
	// Rule returns the counters of a rule. Both labels may be empty.
	Rule(domain, rule string) *RuleCounters
	// Values returns the counters of a rule for descriptors that have values: a
	// label that comes from the request, and names the rule as well.
	Values(domain, rule, values string) *RuleCounters
	// Refusals returns the counter of requests that a rule's limit refused.
	Refusals(domain, rule, limit string) Counter
	// Lease returns the counters of a rule's leases. Both labels may be empty.
	Lease(domain, rule string) *LeaseCounters
	// Tier returns the counter of requests that a tier applied to.
	Tier(domain, rule, tier string) Counter
	// Degraded counts an answer by policy ("allow", "deny", "error" or "local")
	// and its cause ("backend_error" or "overload").
	Degraded(cause, policy string)
}

type noMetrics struct{}

type noCounter struct{}

func (noCounter) Inc() {}

func (noMetrics) Rule(string, string) *RuleCounters {
	var c RuleCounters
	for i := range c {
		c[i] = noCounter{}
	}
	return &c
}

func (m noMetrics) Values(domain, rule, _ string) *RuleCounters { return m.Rule(domain, rule) }

func (noMetrics) Refusals(string, string, string) Counter { return noCounter{} }

func (noMetrics) Lease(string, string) *LeaseCounters {
	var c LeaseCounters
	for i := range c {
		c[i] = noCounter{}
	}
	return &c
}

func (noMetrics) Tier(string, string, string) Counter { return noCounter{} }

func (noMetrics) Degraded(string, string) {}

// A sampler lets through a few events per second, so that a flood of refusals
// does not flood the log.
type sampler struct {
	perSecond int64
	second    atomic.Int64
	count     atomic.Int64
	skipped   atomic.Int64
}

// How many refusals and failures are logged in a second.
const (
	refusalsPerSecond = 10
	failuresPerSecond = 1
)

// samplers has a sampler for each message, so that many of one kind do not hide
// another. Messages are constants, or of a few forms, so there are few.
type samplers struct {
	perSecond int64
	by        sync.Map // message to *sampler
}

// allow is sampler.allow for events with a message.
func (s *samplers) allow(message string) (ok bool, skipped int64) {
	one, found := s.by.Load(message)
	if !found {
		one, _ = s.by.LoadOrStore(message, &sampler{perSecond: s.perSecond})
	}
	return one.(*sampler).allow()
}

// allow says whether to log an event now, and how many were left out since
// the last one that was logged.
func (s *sampler) allow() (ok bool, skipped int64) {
	now := time.Now().Unix()
	if s.second.Swap(now) != now {
		s.count.Store(0)
	}
	if s.count.Add(1) > s.perSecond {
		s.skipped.Add(1)
		return false, 0
	}
	return true, s.skipped.Swap(0)
}
