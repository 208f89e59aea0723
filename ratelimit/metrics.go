package ratelimit

import "github.com/headgate-rls/headgate/ratelimit/leases"

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
type Counter = leases.Counter

// A HitCounter counts up by more than one at once.
type HitCounter interface{ Count(n int64) }

// RuleCounters are the counters of one rule, by [Outcome].
type RuleCounters [NumOutcomes]HitCounter

// Metrics receives what the service counts. Its methods may be called
// concurrently and must bound the number of labels they accept.
type Metrics interface {
	leases.Metrics
	// Rule returns the counters of a rule. Both labels may be empty.
	Rule(domain, rule string) *RuleCounters
	// Values returns the counters of a rule for descriptors that have values: a
	// label that comes from the request, and names the rule as well.
	Values(domain, rule, values string) *RuleCounters
	// Refusals returns the counter of requests that a rule's limit refused.
	Refusals(domain, rule, limit string) HitCounter
	// Overflow returns the counter of hits that a rule's limit took although they did
	// not fit.
	Overflow(domain, rule, limit string) HitCounter
	// Policy returns what records decisions of a rule by a policy: its key, or [PolicyOfRule] or
	// [PolicyOfKeys]. Nil records nothing.
	Policy(domain, rule, policy string) PolicyRecorder
	// ForgetPolicy drops what Policy has returned for a key whose policy was removed.
	ForgetPolicy(domain, rule, policy string)
	// Tier returns the counter of requests that a tier applied to.
	Tier(domain, rule, tier string) Counter
	// Degraded counts an answer by policy ("allow", "deny", "error" or "local")
	// and its cause ("backend_error" or "overload").
	Degraded(cause, policy string)
}

type noMetrics struct{}

type noCounter struct{}

func (noCounter) Inc() {}

func (noCounter) Count(int64) {}

func (noMetrics) Rule(string, string) *RuleCounters {
	var c RuleCounters
	for i := range c {
		c[i] = noCounter{}
	}
	return &c
}

func (m noMetrics) Values(domain, rule, _ string) *RuleCounters { return m.Rule(domain, rule) }

func (noMetrics) Refusals(string, string, string) HitCounter { return noCounter{} }

func (noMetrics) Overflow(string, string, string) HitCounter { return noCounter{} }

func (noMetrics) Policy(string, string, string) PolicyRecorder { return nil }

func (noMetrics) ForgetPolicy(string, string, string) {}

func (noMetrics) Lease(string, string) *leases.Counters {
	var c leases.Counters
	for i := range c {
		c[i] = noCounter{}
	}
	return &c
}

func (noMetrics) Tier(string, string, string) Counter { return noCounter{} }

func (noMetrics) Degraded(string, string) {}
