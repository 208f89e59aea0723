package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit/leases"
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
	OutcomeNotChosen            // another descriptor is charged, or would be, that the rule chooses from
	NumOutcomes
)

// String returns the outcome's metric label.
func (o Outcome) String() string {
	return [NumOutcomes]string{"ok", "over_limit", "shadow_over_limit", "unlimited", "no_rule", "failed_open",
		"failed_closed", "failed_error", "overload", "not_chosen"}[o]
}

// Metrics count what services decide. They may be of several services; nil ones count nothing.
type Metrics struct {
	decided, refused, overflowed, leases, tiers metrics.Counters // by rule
	reservations, reservedUnits, near           metrics.Counters // by rule
	byPolicy                                    metrics.Counters
	degraded, loads                             metrics.Counters
	requests                                    metrics.Histograms
	rows                                        []metrics.Row

	bounds  struct{ rules, values, policies metrics.Bound }
	others  func() *seriesSet    // of rules that have no room
	rest    func() *policySeries // of policies that have none
	brought func() *ruleSeries   // of limits that requests bring themselves
	loose   sync.Map             // looseSeries by looseKey

	inForce    atomic.Pointer[rulesInForce]
	generation atomic.Int64

	mu      sync.Mutex
	byLabel map[ruleLabel]*labelSeries
	waiting int // rules in force that have no room

	limitsMu sync.Mutex
	limitsOf *descriptors.Set
	limits   []limitValue // of limitsOf

	recorded func(*policySeries, *PolicyTally) // nil but in tests
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	m := &Metrics{byLabel: map[ruleLabel]*labelSeries{}}
	m.bounds.rules.Most, m.bounds.values.Most, m.bounds.policies.Most = maxRuleSeries, maxValues, maxPolicies
	rule, outcomes := metrics.Open("domain", "rule"), metrics.Texts(0, NumOutcomes)
	// A rule has no series for what never happened to it; a policy has some: a first refusal must be an increase.
	m.decided.Silent = func(int) bool { return true }
	m.byPolicy.Silent = func(o int) bool { return Outcome(o) != OutcomeOK && Outcome(o) != OutcomeOverLimit }
	m.overflowed.Silent = m.decided.Silent
	now := func(f func(*rulesInForce) float64) func() float64 {
		return func() float64 { return f(m.inForce.Load()) }
	}
	m.rows = []metrics.Row{
		m.decided.Row("headgate_decisions_total", "Descriptors decided, by outcome.", rule.Closed("outcome", outcomes...)),
		m.overflowed.Row("headgate_overflow_hits_total", "Hits that did not fit and were taken all the same (overflow: "+
			"saturate or debt).", metrics.Open("domain", "rule", "limit")),
		m.refused.Row("headgate_refusals_total", "Requests refused, by the limit that refused them: its name, "+
			"or its number in the rule, or concurrency.", metrics.Open("domain", "rule", "limit")),
		m.byPolicy.Row("headgate_policy_decisions_total",
			"Descriptors decided under rules with policy, by the policy and outcome. policy: a key, if it is the rule's name, "+
				"the default policy, or one of --policy-metrics; (keys): others; (rule): none, the rule's own limit.",
			metrics.Open("domain", "rule", "policy").Closed("outcome", outcomes...)),
		{Name: "headgate_policy_remaining_units", Kind: metrics.IsGauge, Labels: metrics.Open("domain", "rule", "policy"),
			Help: "Units left under the policy after the decision of the last one to two minutes that left the smallest part " +
				"of its limit. No decision, no series.",
			Each: m.eachLevel(func(l Level) int64 { return l.Remaining })},
		{Name: "headgate_policy_limit_units", Kind: metrics.IsGauge, Labels: metrics.Open("domain", "rule", "policy"),
			Help: "The limit that headgate_policy_remaining_units is a part of: units per window, " +
				"or the burst of a token bucket.",
			Each: m.eachLevel(func(l Level) int64 { return l.Limit })},
		{Name: "headgate_limit", Kind: metrics.IsGauge, Labels: metrics.Open("domain", "rule", "limit", "algorithm"),
			Each: m.eachLimit,
			Help: "What a limit of the rules in force admits: units per window, or requests in flight."},
		{Name: "headgate_rule_keys", Kind: metrics.IsGauge, Labels: metrics.Open("domain", "rule"),
			Each: m.eachBudget(func(k *keyBudget) int64 { return k.used.Load() }),
			Help: "Values that have a counter of their own under a rule with max_keys, as far as this process knows."},
		{Name: "headgate_rule_keys_shared_total", Kind: metrics.IsCounter, Labels: metrics.Open("domain", "rule"),
			Each: m.eachBudget(func(k *keyBudget) int64 { return k.others.Load() }),
			Help: "Decisions by the counter that the values beyond max_keys share."},
		m.degraded.Row("headgate_degraded_requests_total", "Requests answered by policy because the backend failed (cause "+
			"backend_error), had no capacity for them (cause overload), or has counters of a later version in a format that "+
			"this one cannot read (cause later_format).",
			metrics.Open("cause", "policy")),
		m.requests.Row("headgate_request_duration_seconds", "Time to answer a request.", metrics.Latency,
			metrics.Open("transport").Closed("result", metrics.Texts(0, NumCallResults)...)),
		m.leases.Row("headgate_leases_total", "What happened to leases of requests in flight. repeated: "+
			"acquired again by a repeated call; released: ended, counted once; "+
			"expired: had expired when the end was reported; unknown: had ended before, or never existed; overtaken: "+
			"refused because its end came first; "+
			"abandoned: given back because nobody took the answer; lost: left to expire; reaped: "+
			"ended because its proxy is gone.",
			rule.Closed("event", metrics.Texts(0, leases.NumEvents)...)),
		m.reservations.Row("headgate_reservations_total", "What happened to reservations. settled: ended with a "+
			"cost; failed and unsettled: ended without one, by a request that failed or not; lost: nobody has ended it; late: "+
			"its end came after that; repeated: its end came again; cancelled: nobody took the answer; unkept: not kept, so "+
			"that the charge stays; refused: its key has as many as it may have; unreserved: a cost for which nothing was "+
			"reserved; unasked: a call that neither reserves nor reports, by the hits that it has; "+
			"full: ended with 429, so that what was left of its limits was taken.",
			rule.Closed("event", metrics.Texts(0, leases.NumReservationEvents)...)),
		m.reservedUnits.Row("headgate_reserved_units_total", "Units of reservations: reserved, given back when they were "+
			"settled or lost (refunded), charged beyond what was reserved (overspent), and given back because their request "+
			"was lost (lost).", rule.Closed("kind", metrics.Texts(0, leases.NumUnitKinds)...)),
		m.near.Row("headgate_limits_nearly_used_total", "Keys that have used a limit as far as its warn_at, once in each "+
			"window.", rule),
		m.tiers.Row("headgate_concurrency_tier_total",
			"Requests that a tier of a limit on requests in flight delayed or refused.", metrics.Open("domain", "rule", "tier")),

		metrics.GaugeOf("headgate_rules", "Rules in force.",
			now(func(r *rulesInForce) float64 { return float64(len(r.set.Rules())) })),
		metrics.GaugeOf("headgate_rules_generation", "Rule sets put in force since the start.", m.generation.Load),
		metrics.GaugeOf("headgate_rules_loaded_timestamp_seconds", "When the current rule set was put in force.",
			now(func(r *rulesInForce) float64 { return r.since })),
		m.loads.Row("headgate_rules_loads_total", "Attempts to load rules.", metrics.Closed("result", "ok", "error")),
		metrics.GaugeOf("headgate_rules_hash", `A hash of the rules in force. Replicas with the same rules have the same `+
			`hash: count(count_values("hash", headgate_rules_hash)) > 1 means that they differ.`,
			now(func(r *rulesInForce) float64 { return float64(r.set.Hash()) })),
	}
	for cause, policies := range degradedLabels() {
		for _, policy := range policies {
			m.degraded.Of(cause, policy)
		}
	}
	m.inForce.Store(&rulesInForce{set: new(descriptors.Set)})
	m.prepare()
	return m
}

// Rows returns the table of the metrics.
func (m *Metrics) Rows() []metrics.Row { return m.rows }

// answered counts an answer by policy ("allow", "deny", "error" or "local") and its cause ("backend_error",
// "overload" or "later_format").
func (m *Metrics) answered(cause, policy string) {
	if m != nil {
		m.degraded.Of(cause, policy).Inc()
	}
}

// Degraded returns how many requests policies have answered because the backend failed or had no capacity.
func (m *Metrics) Degraded() (n int64) {
	for cause, policies := range degradedLabels() {
		for _, policy := range policies {
			n += m.degraded.Of(cause, policy).Value()
		}
	}
	return n
}

// Requests returns a function that records answered requests of a transport.
func (m *Metrics) Requests(transport string) Observe {
	var by [NumCallResults]*metrics.Histogram
	for r := range by {
		by[r] = m.requests.Of(transport, CallResult(r).String())
	}
	return func(took time.Duration, r CallResult, calls int) { by[r].Took(took, calls) }
}

// rulesInForce are what metrics know of the rules.
type rulesInForce struct {
	set   *descriptors.Set
	since float64 // in seconds since 1970
	keys  []*keyBudget
}

// RulesFailed counts rules that could not be loaded.
func (m *Metrics) RulesFailed() { m.loads.Of("error").Inc() }

// Loads returns how often rules were put in force, and how often they could not be.
func (m *Metrics) Loads() (ok, failed int64) {
	return m.loads.Of("ok").Value(), m.loads.Of("error").Value()
}

// A limitValue is a limit in force.
type limitValue struct {
	labels [4]string
	most   float64
}

// eachLimit emits the limits in force, as many as maxRuleSeries. They are listed when they are first asked for: rules
// may change more often than that.
func (m *Metrics) eachLimit(emit metrics.Emit) {
	m.limitsMu.Lock()
	defer m.limitsMu.Unlock()
	if set := m.inForce.Load().set; set != m.limitsOf {
		m.limitsOf, m.limits = set, limitsOf(set)
	}
	for _, l := range m.limits {
		emit(l.labels[:], l.most, nil)
	}
}

// eachBudget returns what emits a figure of each budget of keys.
func (m *Metrics) eachBudget(figure func(*keyBudget) int64) func(metrics.Emit) {
	return func(emit metrics.Emit) {
		for _, k := range m.inForce.Load().keys {
			emit([]string{k.label.domain, k.label.path}, float64(figure(k)), nil)
		}
	}
}

func limitsOf(set *descriptors.Set) (list []limitValue) {
	type labels struct {
		ruleLabel
		limit string
	}
	seen := map[labels]bool{} // rules of different places can have the same label
	for _, r := range set.Rules() {
		for _, l := range LimitLabels(r) {
			if len(list) == maxRuleSeries {
				return list
			}
			of := labels{ruleLabel{r.Domain, r.Path}, l.Name}
			if !seen[of] {
				seen[of] = true
				list = append(list, limitValue{[4]string{r.Domain, r.Path, l.Name, l.Limit.Algorithm().String()},
					float64(l.Limit.Max())})
			}
		}
	}
	return list
}

// Rows returns the metrics of the coverage.
func (c *Coverage) Rows() []metrics.Row {
	domain := metrics.Open("domain")
	return []metrics.Row{
		{Name: "headgate_descriptors_matched_total", Kind: metrics.IsCounter, Labels: domain,
			Help: "Descriptors that a rule matches, of domains that rules have.",
			Each: c.byDomain((*Shape).Matched)},
		{Name: "headgate_descriptors_unmatched_total", Kind: metrics.IsCounter, Labels: domain,
			Help: "Descriptors that no rule matches, of domains that rules have: they are not limited.",
			Each: c.byDomain(func(s *Shape) int64 { return s.Missed.Value() })},
		{Name: "headgate_calls_matched_total", Kind: metrics.IsCounter, Labels: domain,
			Help: "Calls of which a rule matched a descriptor, by domain.",
			Each: c.byDomain((*Shape).Covered)},
		{Name: "headgate_calls_unmatched_total", Kind: metrics.IsCounter, Labels: domain,
			Help: "Calls of which no rule matched any descriptor, of domains that rules have: they are not limited.",
			Each: c.byDomain(func(s *Shape) int64 { return s.Uncovered.Value() })},
		metrics.GaugeOf("headgate_descriptor_shapes",
			"Shapes of descriptors (their keys, in order) that were seen. At 1000 there is no room for more.",
			func() int {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.count.shapes
			}),
	}
}

// byDomain emits the sum of a figure of the shapes of each domain.
func (c *Coverage) byDomain(figure func(*Shape) int64) func(metrics.Emit) {
	return func(emit metrics.Emit) {
		list := c.Shapes()
		for i := 0; i < len(list); {
			domain, sum := list[i].Domain, int64(0)
			for ; i < len(list) && list[i].Domain == domain; i++ {
				sum += figure(list[i])
			}
			emit([]string{domain}, float64(sum), nil)
		}
	}
}
