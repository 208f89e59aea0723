// Package telemetry is headgate's metrics: the only package that knows
// Prometheus, and the one that bounds the number of series. Stores and their
// layers describe their own figures (backends.Figure), which have no labels; every
// other metric is a row of a table here, from which the documentation comes too.
package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/observe"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Metrics holds every metric of the process.
type Metrics struct {
	registry *prometheus.Registry
	keeper   keeper
	inForce  rulesInForce

	decided  decided
	refusals *prometheus.CounterVec
	overflow *prometheus.CounterVec
	leases   *prometheus.CounterVec
	tiers    *prometheus.CounterVec
	degraded *prometheus.CounterVec
	panics   *prometheus.CounterVec
	requests *spread
	logged   *prometheus.CounterVec
	byPolicy byPolicy

	calls   *prometheus.HistogramVec
	batched *prometheus.CounterVec
	errors  *prometheus.CounterVec

	limits     limits
	rules      prometheus.Gauge
	generation prometheus.Gauge
	loaded     prometheus.Gauge
	reloads    *prometheus.CounterVec
	lastLoad   prometheus.Gauge
	hash       prometheus.Gauge
	fileErrors *prometheus.GaugeVec

	build *prometheus.GaugeVec

	reference *reference // nil without --reference-metrics
}

// latency buckets from 50 µs to 1 s; Envoy's default deadline is 20 ms.
var latency = []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1}

// rows are the metrics that every server has.
func (m *Metrics) rows() []row { return append(m.limitRows(), m.serverRows()...) }

// limitRows are the metrics about decisions, stores and rules, which the library has as
// well.
func (m *Metrics) limitRows() []row {
	rule := open("domain", "rule")
	return []row{
		counters(&m.decided.vec, metric{name: "headgate_decisions_total", help: "Descriptors decided, by outcome.",
			labels: closed(rule, "outcome", texts(0, ratelimit.NumOutcomes)...)}),
		counters(&m.overflow, metric{name: "headgate_overflow_hits_total", labels: open("domain", "rule", "limit"),
			help: "Hits that did not fit and were taken all the same (overflow: saturate or debt)."}),
		counters(&m.refusals, metric{name: "headgate_refusals_total", labels: open("domain", "rule", "limit"),
			help: "Requests refused, by the limit that refused them: its name, or its number in the rule, or concurrency."}),
		described(&m.byPolicy.decisions, isCounter, metric{name: "headgate_policy_decisions_total",
			help:   "Descriptors decided under rules with policy, by the policy and outcome. policy: a key, if it is the rule's name, the default policy, or one of --policy-metrics; (keys): others; (rule): none, the rule's own limit.",
			labels: closed(open("domain", "rule", "policy"), "outcome", texts(0, ratelimit.NumOutcomes)...)}),
		described(&m.byPolicy.remaining, isGauge, metric{name: "headgate_policy_remaining_units", labels: open("domain", "rule", "policy"),
			help: "Units left under the policy after the decision of the last one to two minutes that left the smallest part of its limit. No decision, no series."}),
		described(&m.byPolicy.limit, isGauge, metric{name: "headgate_policy_limit_units", labels: open("domain", "rule", "policy"),
			help: "The limit that headgate_policy_remaining_units is a part of: units per window, or the burst of a token bucket."}),
		described(&m.limits.desc, isGauge, metric{name: "headgate_limit", labels: open("domain", "rule", "limit", "algorithm"),
			help: "What a limit of the rules in force admits: units per window, or requests in flight."}),
		counters(&m.degraded, metric{name: "headgate_degraded_requests_total", labels: open("cause", "policy"),
			help: "Requests answered by policy because the backend failed (cause backend_error) or had no capacity for them (cause overload)."}),
		spreads(&m.requests, latency, metric{name: "headgate_request_duration_seconds", help: "Time to answer a request.",
			labels: closed(open("transport"), "result", texts(0, ratelimit.NumCallResults)...)}),
		counters(&m.panics, metric{name: "headgate_panics_total", labels: open("where"),
			help: "Panics that did not end the process, by where they happened. Each is a defect, and the log has its stack. Policies answer the calls concerned."}),

		counters(&m.leases, metric{name: "headgate_leases_total", labels: closed(rule, "event", texts(0, leases.NumEvents)...),
			help: "What happened to leases of requests in flight. repeated: acquired again by a repeated call; released: ended, counted once; " +
				"expired: had expired when the end was reported; unknown: had ended before, or never existed; overtaken: refused because its end came first; " +
				"abandoned: given back because nobody took the answer; lost: left to expire; reaped: ended because its proxy is gone."}),
		counters(&m.tiers, metric{name: "headgate_concurrency_tier_total", labels: open("domain", "rule", "tier"),
			help: "Requests that a tier of a limit on requests in flight delayed or refused."}),

		histograms(&m.calls, latency, metric{name: "headgate_backend_call_duration_seconds", labels: closed(open("backend"), "call", callNames()...),
			help: "Time of a call to the backend."}),
		counters(&m.batched, metric{name: "headgate_backend_requests_total", labels: open("backend"), help: "Requests in calls to the backend."}),
		counters(&m.errors, metric{name: "headgate_backend_errors_total", help: "Requests and calls that failed in the backend, by class of error.",
			labels: closed(closed(open("backend"), "call", callNames()...), "class", texts(observe.None+1, observe.NumClasses)...)}),

		gauge(&m.rules, metric{name: "headgate_rules", help: "Rules in force."}),
		gauge(&m.generation, metric{name: "headgate_rules_generation", help: "Rule sets put in force since the start."}),
		gauge(&m.loaded, metric{name: "headgate_rules_loaded_timestamp_seconds", help: "When the current rule set was put in force."}),
		counters(&m.reloads, metric{name: "headgate_rules_loads_total", labels: closed(nil, "result", "ok", "error"), help: "Attempts to load rules."}),
		gauge(&m.hash, metric{name: "headgate_rules_hash",
			help: `A hash of the rules in force. Replicas with the same rules have the same hash: count(count_values("hash", headgate_rules_hash)) > 1 means that they differ.`}),
	}
}

// serverRows are the metrics that only servers have.
func (m *Metrics) serverRows() []row {
	return []row{
		counters(&m.logged, metric{name: "headgate_access_log_total", labels: closed(nil, "event", texts(0, leases.NumLogEvents)...),
			help: "Entries of Envoy's access log (renews, releases, ignored, malformed, dropped) and its streams (opened, closed, refused)."}),
		gauge(&m.lastLoad, metric{name: "headgate_rules_last_load_successful", help: "1 if all files of rules were put in force when they were last read, else 0."}),
		gauges(&m.fileErrors, metric{name: "headgate_rules_file_errors", labels: open("file"),
			help: "Errors in a file of rules, whose domains stay as they were. Files without errors have no series; at most 100 files have their own."}),
		gauges(&m.build, metric{name: "headgate_build_info", labels: open("version"), help: "Always 1; the label has the version."}),
	}
}

// callNames are the calls of a backend, by the method.
func callNames() []string { return append([]string{"take"}, texts(observe.Op(0), observe.NumOps)...) }

// New returns the metrics of a process of the given version.
func New(version string) *Metrics {
	m := NewLimits()
	register(m.registry, m.serverRows(), nil)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.build.WithLabelValues(version).Set(1)
	m.lastLoad.Set(1)
	return m
}

// NewLimits returns the metrics of a limiter in another program.
func NewLimits() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.keeper.static.most, m.keeper.values.most, m.keeper.policies.most = maxRules, maxValues, maxPolicies
	register(m.registry, m.limitRows(), nil)
	m.registry.MustRegister(&m.limits, &m.byPolicy)
	for cause, policies := range ratelimit.DegradedLabels() {
		for _, policy := range policies {
			m.degraded.WithLabelValues(cause, policy)
		}
	}
	for _, where := range []string{"backend", "combine", "fallback", "connection", "worker", "grpc", "stream"} {
		m.panics.WithLabelValues(where)
	}
	return m
}

// Collector returns all metrics as one collector, for the registry of another program.
func (m *Metrics) Collector() prometheus.Collector { return m.registry }

// AddFigures publishes the metrics of a store and its layers.
func (m *Metrics) AddFigures(list []backends.Figure) {
	register(m.registry, figureRows(list), nil)
	if m.reference != nil {
		m.reference.addFigures(m.registry, list)
	}
}

func figureRows(list []backends.Figure) []row {
	var rows []row
	for _, f := range list {
		k := isGauge
		if f.Counter {
			k = isCounter
		}
		rows = append(rows, figure(k, f.Value, metric{name: f.Name, help: f.Help}))
	}
	return rows
}

// maxScrapes is how many requests for metrics are answered at a time, others get 503: each keeps all
// metrics in memory until its client has read them.
const maxScrapes = 16

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	// OpenMetrics would rename the reference's counters to end with _total.
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: m.reference == nil, MaxRequestsInFlight: maxScrapes})
}

// AccessLog counts n of an event of the access log.
func (m *Metrics) AccessLog(e leases.LogEvent, n int) {
	m.logged.WithLabelValues(e.String()).Add(float64(n))
}

// Panicked counts a panic that was survived.
func (m *Metrics) Panicked(where string) { m.panics.WithLabelValues(where).Inc() }

// Degraded implements [ratelimit.Metrics].
func (m *Metrics) Degraded(cause, policy string) {
	m.degraded.WithLabelValues(cause, policy).Inc()
	if m.reference != nil {
		m.reference.errors.WithLabelValues("redis_error").Inc()
	}
}

// Requests returns a function that records answered requests of a transport.
func (m *Metrics) Requests(transport string) ratelimit.Observe {
	var by [ratelimit.NumCallResults]*spreadSeries
	for r := range by {
		by[r] = m.requests.with(transport, ratelimit.CallResult(r).String())
	}
	if m.reference == nil || transport == "json" {
		return func(took time.Duration, r ratelimit.CallResult, calls int) { by[r].observe(took, calls) }
	}
	return func(took time.Duration, r ratelimit.CallResult, calls int) {
		by[r].observe(took, calls)
		m.reference.observe(took, r, calls)
	}
}
