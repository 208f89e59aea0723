// Package telemetry is headgate's metrics: the only place where metric names
// are spelled and where the number of labels is bounded.
package telemetry

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/accesslog"
)

// Metrics holds every metric of the process.
type Metrics struct {
	registry *prometheus.Registry

	decisions *prometheus.CounterVec
	degraded  *prometheus.CounterVec
	panics    *prometheus.CounterVec
	requests  *prometheus.HistogramVec
	calls     *prometheus.HistogramVec
	batched   *prometheus.CounterVec
	errors    *prometheus.CounterVec
	reloads   *prometheus.CounterVec

	generation prometheus.Gauge
	loaded     prometheus.Gauge
	rules      prometheus.Gauge
	fileErrors *prometheus.GaugeVec
	lastLoad   prometheus.Gauge
	hash       prometheus.Gauge
	limits     constants

	leases *prometheus.CounterVec
	logged *prometheus.CounterVec
	tiers  *prometheus.CounterVec

	refusals *prometheus.CounterVec

	known          sync.Map // *series by labels, see seriesOf
	static, values budget
}

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
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_panics_total",
			Help: "Panics that were survived, by where they happened.",
		}, []string{"where"}),
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
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_refusals_total",
			Help: "Requests refused, by the limit that refused them.",
		}, []string{"domain", "rule", "limit"}),
		limits: constants{desc: prometheus.NewDesc("headgate_limit",
			"Units per window, or requests in flight, that a limit of the rules in force admits.",
			[]string{"domain", "rule", "limit", "algorithm"}, nil)},
		lastLoad: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules_last_load_successful",
			Help: "1 if all files of rules were put in force when they were last read, else 0.",
		}),
		hash: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_rules_hash",
			Help: "A hash of the rules in force: replicas with the same rules have the same.",
		}),
		static: budget{most: maxRules},
		values: budget{most: maxValues},
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
	m.lastLoad.Set(1)
	m.startAtZero()
	m.registry.MustRegister(m.decisions, m.degraded, m.panics, m.requests, m.calls, m.batched, m.errors, m.leases, m.logged, m.tiers,
		m.reloads, m.refusals, &m.limits, m.lastLoad, m.hash, m.generation, m.loaded, m.rules, m.fileErrors, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// AccessLog counts n of an event of the access log.
func (m *Metrics) AccessLog(e accesslog.Event, n int) {
	m.logged.WithLabelValues(e.String()).Add(float64(n))
}

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
		{Name: "headgate_presence_failures_total", Help: "Failures to read or write the registry of requests in flight, which replicas share.", Counter: true,
			Value: func() float64 { return float64(s.Stats().Failures) }},
	})
}

// Panicked counts a panic that was survived.
func (m *Metrics) Panicked(where string) { m.panics.WithLabelValues(where).Inc() }

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
