// Package telemetry is headgate's metrics: the only place where metric names
// are spelled and where the number of labels is bounded.
package telemetry

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/accesslog"
)

// maxRules bounds the pairs of domain and rule that have their own series;
// the rest is counted under rule "(other)". Rules with detailed_metric put
// values that clients choose into the label.
const maxRules = 10_000

const otherRule = "(other)"

// Metrics holds every metric of the process.
type Metrics struct {
	registry *prometheus.Registry

	decisions *prometheus.CounterVec
	degraded  *prometheus.CounterVec
	requests  *prometheus.HistogramVec
	calls     *prometheus.HistogramVec
	batched   *prometheus.CounterVec
	errors    *prometheus.CounterVec
	reloads   *prometheus.CounterVec

	generation prometheus.Gauge
	loaded     prometheus.Gauge
	rules      prometheus.Gauge
	fileErrors *prometheus.GaugeVec

	leases *prometheus.CounterVec
	logged *prometheus.CounterVec
	tiers  *prometheus.CounterVec

	known  sync.Map // by labels, see series
	nKnown atomic.Int64
}

type ruleLabels struct{ domain, rule string }

// latency buckets from 50 µs to 1 s; Envoy's default deadline is 20 ms.
var latency = []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1}

// New returns the metrics of a process of the given version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_decisions_total",
			Help: "Descriptors decided, by rule and outcome.",
		}, []string{"domain", "rule", "outcome"}),
		degraded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_degraded_requests_total",
			Help: "Requests answered by policy because the backend failed or could not be asked about so many.",
		}, []string{"cause", "policy"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "headgate_request_duration_seconds",
			Help:    "Time to answer a request, by transport and result.",
			Buckets: latency,
		}, []string{"transport", "result"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "headgate_backend_call_duration_seconds",
			Help:    "Time of a call to the backend.",
			Buckets: latency,
		}, []string{"backend", "call"}),
		batched: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_backend_requests_total",
			Help: "Requests that calls to the backend carried.",
		}, []string{"backend"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_backend_errors_total",
			Help: "Requests and calls that the backend failed, by class of error.",
		}, []string{"backend", "call", "class"}),
		leases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_leases_total",
			Help: "What happened to leases of requests in flight, by rule and event.",
		}, []string{"domain", "rule", "event"}),
		logged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_access_log_total",
			Help: "Entries and streams of Envoy's access log, by what became of them.",
		}, []string{"event"}),
		tiers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_concurrency_tier_total",
			Help: "Requests that a tier of a limit on requests in flight delayed or refused.",
		}, []string{"domain", "rule", "tier"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_rules_loads_total",
			Help: "Attempts to load rules, by result (ok or error).",
		}, []string{"result"}),
		generation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules_generation",
			Help: "Number of rule sets that were put in force since start.",
		}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules_loaded_timestamp_seconds",
			Help: "When the current rule set was put in force.",
		}),
		rules: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules",
			Help: "Number of rules in force.",
		}),
		fileErrors: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headgate_rules_file_errors",
			Help: "Errors in a file of rules, whose domains stay as they were. Files without errors have no series.",
		}, []string{"file"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headgate_build_info", Help: "Always 1; the label has the version.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.registry.MustRegister(m.decisions, m.degraded, m.requests, m.calls, m.batched, m.errors, m.leases, m.logged, m.tiers,
		m.reloads, m.generation, m.loaded, m.rules, m.fileErrors, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// series returns what is kept under labels, made when first asked for. Once
// there are maxRules of them, the rest shares what is kept under other.
func series[L comparable, T any](m *Metrics, labels, other L, make func(L) T) T {
	if c, ok := m.known.Load(labels); ok {
		return c.(T)
	}
	if m.nKnown.Add(1) > maxRules {
		m.nKnown.Add(-1)
		labels = other
		if c, ok := m.known.Load(labels); ok {
			return c.(T)
		}
	}
	c, _ := m.known.LoadOrStore(labels, make(labels))
	return c.(T)
}

// Rule implements [ratelimit.Metrics].
func (m *Metrics) Rule(domain, rule string) *ratelimit.RuleCounters {
	return series(m, ruleLabels{domain, rule}, ruleLabels{"", otherRule}, m.ruleCounters)
}

func (m *Metrics) ruleCounters(key ruleLabels) *ratelimit.RuleCounters {
	var c ratelimit.RuleCounters
	for o := range ratelimit.NumOutcomes {
		c[o] = &lazyCounter{vec: m.decisions, labels: [3]string{key.domain, key.rule, o.String()}}
	}
	return &c
}

// Lease implements [ratelimit.Metrics]. The labels are those of rules, also of
// earlier ones: tokens outlive a change of rules.
func (m *Metrics) Lease(domain, rule string) *ratelimit.LeaseCounters {
	return series(m, leaseLabels{domain, rule}, leaseLabels{"", otherRule}, m.leaseCounters)
}

func (m *Metrics) leaseCounters(key leaseLabels) *ratelimit.LeaseCounters {
	var c ratelimit.LeaseCounters
	for e := range ratelimit.NumLeaseEvents {
		c[e] = &lazyCounter{vec: m.leases, labels: [3]string{key.domain, key.rule, e.String()}}
	}
	return &c
}

type leaseLabels struct{ domain, rule string }

// AccessLog counts n of an event of the access log.
func (m *Metrics) AccessLog(e accesslog.Event, n int) {
	m.logged.WithLabelValues(e.String()).Add(float64(n))
}

// Tier implements [ratelimit.Metrics].
func (m *Metrics) Tier(domain, rule, tier string) ratelimit.Counter {
	return series(m, tierLabels{domain, rule, tier}, tierLabels{"", otherRule, ""}, func(key tierLabels) *lazyCounter {
		return &lazyCounter{vec: m.tiers, labels: [3]string{key.domain, key.rule, key.tier}}
	})
}

type tierLabels struct{ domain, rule, tier string }

// inFlight publishes how many requests are in flight, as far as that is known.
type inFlight struct {
	known           func() (list []ratelimit.InFlight, complete bool)
	count, complete *prometheus.Desc
}

func (c *inFlight) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.count
	ch <- c.complete
}

func (c *inFlight) Collect(ch chan<- prometheus.Metric) {
	list, complete := c.known()
	for _, f := range list {
		ch <- prometheus.MustNewConstMetric(c.count, prometheus.GaugeValue, float64(f.Count), f.Domain, f.Rule)
	}
	value := 0.0
	if complete {
		value = 1
	}
	ch <- prometheus.MustNewConstMetric(c.complete, prometheus.GaugeValue, value)
}

// AddInFlight publishes what s knows of requests in flight.
func (m *Metrics) AddInFlight(s *ratelimit.Service) {
	m.registry.MustRegister(&inFlight{known: s.InFlight,
		count: prometheus.NewDesc("headgate_requests_in_flight",
			"Requests in flight, of all replicas together, by rule.", []string{"domain", "rule"}, nil),
		complete: prometheus.NewDesc("headgate_requests_in_flight_complete",
			"1 if headgate_requests_in_flight counts all requests and was compared with the store lately, else 0.", nil, nil)})
	m.AddStats([]Stat{
		{Name: "headgate_requests_in_flight_keys", Help: "Keys under which requests in flight are counted.", Value: func() float64 { return float64(s.Stats().Keys) }},
		{Name: "headgate_owners", Help: "Proxies that are known to have requests in flight.", Value: func() float64 { return float64(s.Stats().Owners) }},
		{Name: "headgate_presence_failures_total", Help: "Times that what replicas share about requests in flight could not be read or written.", Counter: true,
			Value: func() float64 { return float64(s.Stats().Failures) }},
	})
}

// A lazyCounter becomes a series when it is first counted up, so that a rule
// has no series for what never happened to it.
type lazyCounter struct {
	vec    *prometheus.CounterVec
	labels [3]string
	once   sync.Once
	c      prometheus.Counter
}

func (l *lazyCounter) Inc() {
	l.once.Do(func() { l.c = l.vec.WithLabelValues(l.labels[:]...) })
	l.c.Inc()
}

// Degraded implements [ratelimit.Metrics].
func (m *Metrics) Degraded(cause, policy string) { m.degraded.WithLabelValues(cause, policy).Inc() }

// Requests returns a function that records answered requests of a transport.
func (m *Metrics) Requests(transport string) func(time.Duration, ratelimit.CallResult) {
	var by [ratelimit.NumCallResults]prometheus.Observer
	for r := range by {
		by[r] = m.requests.WithLabelValues(transport, ratelimit.CallResult(r).String())
	}
	return func(d time.Duration, r ratelimit.CallResult) { by[r].Observe(d.Seconds()) }
}

// RulesLoaded records that a set of n rules is in force.
func (m *Metrics) RulesLoaded(n int, at time.Time) {
	m.reloads.WithLabelValues("ok").Inc()
	m.generation.Inc()
	m.loaded.Set(float64(at.UnixNano()) / 1e9)
	m.rules.Set(float64(n))
}

// RulesFailed records that rules could not be loaded.
func (m *Metrics) RulesFailed() { m.reloads.WithLabelValues("error").Inc() }

// maxFiles bounds the files that have a series of their own.
const maxFiles = 100

// RulesFileErrors records how many errors each file of rules has. Beyond
// maxFiles, errors are counted under file "(other)".
func (m *Metrics) RulesFileErrors(errors map[string]int) {
	m.fileErrors.Reset()
	for i, file := range slices.Sorted(maps.Keys(errors)) {
		if i >= maxFiles {
			file = "(other)"
		}
		m.fileErrors.WithLabelValues(strings.ToValidUTF8(file, "_")).Add(float64(errors[file]))
	}
}

// A Stat is a figure that a backend keeps itself.
type Stat struct {
	Name, Help string
	// Counter says that the figure only grows.
	Counter bool
	Value   func() float64
}

// AddStats publishes a backend's own figures.
func (m *Metrics) AddStats(stats []Stat) {
	for _, s := range stats {
		if s.Counter {
			m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: s.Name, Help: s.Help}, s.Value))
		} else {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: s.Name, Help: s.Help}, s.Value))
		}
	}
}
