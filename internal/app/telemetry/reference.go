package telemetry

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Bounds of the series of hits, whose labels come from rules and from requests.
const (
	maxHitSeries = 10_000
	maxHitBytes  = 8 << 20 // of all labels together
	maxHitLabel  = 2 << 10 // of one label
)

// reference publishes metrics under the names of envoyproxy/ratelimit. It implements
// [ratelimit.HitMetrics]. Series of hits are shared by all rules that have the same labels, as
// there, and go when no rule has them any more.
type reference struct {
	hits [numHitStats]*prometheus.Desc // by domain, key1 and key2
	few  [2][numHitStats]*prometheus.Desc

	loaded, failed, shadow prometheus.Counter
	errors                 *prometheus.CounterVec
	requests               *prometheus.CounterVec
	times                  *spread
	duration               *spreadSeries // of times

	log    *slog.Logger
	warned atomic.Bool

	mu     sync.RWMutex
	series map[hitLabels]*hitSeries
	bytes  int // of the labels of series
}

// hitLabels are the labels of a series of hits. Empty ones are left out.
type hitLabels struct{ domain, key1, key2 string }

func (l hitLabels) size() int { return len(l.domain) + len(l.key1) + len(l.key2) }

// A hitSeries is what is counted under some labels.
type hitSeries struct {
	ratelimit.HitCounters
	rules map[ruleKey]bool // that count here; nil: requests, or domains without room, do
}

// The statistics of hits.
const numHitStats = 5

// hitStats are the statistics of hits: the table of what a series has.
var hitStats = [numHitStats]struct {
	name, help, ours string
	value            func(*ratelimit.HitCounters) *atomic.Uint64
}{
	{"total_hits", "Hits that were asked for.", "", func(c *ratelimit.HitCounters) *atomic.Uint64 { return &c.Total }},
	{"over_limit", "Hits beyond the limit, in shadow mode too.", "`headgate_decisions_total{outcome=~\"over_limit|shadow_over_limit\"}`, in descriptors",
		func(c *ratelimit.HitCounters) *atomic.Uint64 { return &c.Over }},
	{"near_limit", "Hits between --near-limit-ratio of the limit and the limit.", "", func(c *ratelimit.HitCounters) *atomic.Uint64 { return &c.Near }},
	{"within_limit", "Hits of descriptors that were admitted.", "`headgate_decisions_total{outcome=\"ok\"}`, in descriptors",
		func(c *ratelimit.HitCounters) *atomic.Uint64 { return &c.Within }},
	{"shadow_mode", "Hits beyond a limit in shadow mode.", "`headgate_decisions_total{outcome=\"shadow_over_limit\"}`, in descriptors",
		func(c *ratelimit.HitCounters) *atomic.Uint64 { return &c.Shadow }},
}

// rows are the metrics of the reference that have no labels of rules.
func (r *reference) rows() []row {
	return []row{
		counter(&r.shadow, metric{name: "ratelimit_service_global_shadow_mode", help: "Requests that only --shadow-mode admitted."}),
		counter(&r.loaded, metric{name: "ratelimit_service_config_load_success", help: "Rules put in force."}),
		counter(&r.failed, metric{name: "ratelimit_service_config_load_error", help: "Attempts to load rules that failed."}),
		counters(&r.errors, metric{name: "ratelimit_service_should_rate_limit_error", labels: closed(nil, "err_type", "redis_error", "service_error"),
			help: "Requests that the backend failed to decide, and invalid ones."}),
		counters(&r.requests, metric{name: "ratelimit_service_total_requests", labels: closed(nil, "grpc_method", "ShouldRateLimit"), help: "Calls by gRPC."}),
		spreads(&r.times, prometheus.DefBuckets, metric{name: "ratelimit_service_response_time_seconds", labels: closed(nil, "grpc_method", "ShouldRateLimit"),
			help: "Time to answer a call by gRPC."}),
	}
}

// referenceFigures are metrics of the reference whose values figures of stores and layers have.
var referenceFigures = []struct{ name, figure string }{
	{"ratelimit_redis_pool_cx_active", "headgate_redis_pool_connections"},
	{"ratelimit_localcache_hitCount", "headgate_denycache_hits_total"},
	{"ratelimit_localcache_entryCount", "headgate_denycache_entries"},
	{"ratelimit_localcache_evacuateCount", "headgate_denycache_evictions_total"},
}

// EnableReference adds the metrics of envoyproxy/ratelimit, which are also what a
// [ratelimit.Service] counts hits in. It is called once, before any other method.
func (m *Metrics) EnableReference(log *slog.Logger) ratelimit.HitMetrics {
	r := &reference{log: log, series: map[hitLabels]*hitSeries{}}
	register(m.registry, r.rows(), nil)
	r.duration = r.times.with("ShouldRateLimit")
	for i := range hitStats {
		name, help := "ratelimit_service_rate_limit_"+hitStats[i].name, hitStats[i].help
		r.hits[i] = prometheus.NewDesc(name, help, []string{"domain", "key1", "key2"}, nil)
		r.few[0][i] = prometheus.NewDesc(name, help, []string{"domain"}, nil)
		r.few[1][i] = prometheus.NewDesc(name, help, []string{"domain", "key1"}, nil)
	}
	m.registry.MustRegister(r)
	m.reference = r
	return r
}

// addFigures publishes what figures say under the reference's names.
func (r *reference) addFigures(registry *prometheus.Registry, list []backends.Figure) {
	for _, f := range list {
		for _, alias := range referenceFigures {
			if alias.figure == f.Name {
				f.Name = alias.name
				register(registry, figureRows([]backends.Figure{f}), nil)
			}
		}
	}
}

// Describe implements prometheus.Collector. It names nothing: series of one name have different
// labels, as those of the reference.
func (r *reference) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *reference) Collect(ch chan<- prometheus.Metric) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for l, s := range r.series {
		descs, values := &r.hits, []string{l.domain, l.key1, l.key2}
		switch {
		case l.key1 == "":
			descs, values = &r.few[0], values[:1]
		case l.key2 == "":
			descs, values = &r.few[1], values[:2]
		}
		for i := range hitStats {
			ch <- prometheus.MustNewConstMetric(descs[i], prometheus.CounterValue, float64(hitStats[i].value(&s.HitCounters).Load()), values...)
		}
	}
}

// GlobalShadow implements [ratelimit.HitMetrics].
func (r *reference) GlobalShadow() { r.shadow.Inc() }

// Hits implements [ratelimit.HitMetrics]. Beyond the bounds, hits are counted under their
// domain alone, and beyond those of domains under none.
func (r *reference) Hits(domain, of, label string) *ratelimit.HitCounters {
	labels := labelsOfHits(domain, label)
	r.mu.RLock()
	s := r.series[labels]
	known := s != nil && (of == "" || s.rules[ruleKey{domain, of}])
	r.mu.RUnlock()
	if known {
		return &s.HitCounters
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range []hitLabels{labels, {domain: labels.domain}} {
		if s = r.series[l]; s == nil && r.room(l) {
			s = new(hitSeries)
			r.series[l] = s
			r.bytes += l.size()
		}
		if s == nil {
			continue
		}
		if of != "" {
			if s.rules == nil {
				s.rules = map[ruleKey]bool{}
			}
			s.rules[ruleKey{domain, of}] = true
		}
		return &s.HitCounters
	}
	return new(ratelimit.HitCounters) // which nobody sees
}

// room says whether there may be one more series. Domains keep a tenth for themselves.
func (r *reference) room(l hitLabels) bool {
	most, bytes := maxHitSeries*9/10, maxHitBytes*9/10
	if l.key1 == "" {
		most, bytes = maxHitSeries, maxHitBytes
	}
	if len(r.series) < most && r.bytes+l.size() <= bytes {
		return true
	}
	if !r.warned.Swap(true) {
		r.log.Warn("too many series of hits by rule; counting the rest by domain", "series", len(r.series), "bytes", r.bytes)
	}
	return false
}

// dropGone drops the series of rules that are not in force, and those of requests.
func (r *reference) dropGone(inForce map[ruleKey]*descriptors.Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, s := range r.series {
		for key := range s.rules {
			if inForce[key] == nil {
				delete(s.rules, key)
			}
		}
		if len(s.rules) == 0 {
			delete(r.series, l)
			r.bytes -= l.size()
		}
	}
	r.warned.Store(false)
}

var ipv4 = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

var statName = strings.NewReplacer(":", "_", "|", "_")

// labelsOfHits makes the labels of the reference's statistic: its name is divided at dots.
func labelsOfHits(domain, label string) hitLabels {
	name := ipv4.ReplaceAllStringFunc(statName.Replace(domain+"."+label), func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	parts := append(strings.SplitN(name, ".", 4), "", "")
	for i, p := range parts[:3] {
		parts[i] = cutLabel(p)
	}
	return hitLabels{parts[0], parts[1], parts[2]}
}

// cutLabel returns as much of a label as is kept, as valid UTF-8 of its own memory.
func cutLabel(s string) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), maxHitLabel)], "_"))
}

// observe counts answered calls by gRPC.
func (r *reference) observe(d time.Duration, result ratelimit.CallResult, calls int) {
	r.requests.WithLabelValues("ShouldRateLimit").Add(float64(calls))
	r.duration.observe(d, calls)
	if result == ratelimit.CallInvalid {
		r.errors.WithLabelValues("service_error").Add(float64(calls))
	}
}

// ReferenceTable renders the metrics of envoyproxy/ratelimit that headgate serves as a Markdown
// table, for docs/migrate.md.
func ReferenceTable() string {
	var b strings.Builder
	b.WriteString("| name | labels | meaning | headgate's own |\n|---|---|---|---|\n")
	for i := range hitStats {
		ours := hitStats[i].ours
		if ours == "" {
			ours = "–"
		}
		fmt.Fprintf(&b, "| `ratelimit_service_rate_limit_%s` | `domain`, `key1`, `key2` | %s | %s |\n", hitStats[i].name, hitStats[i].help, strings.ReplaceAll(ours, "|", `\|`))
	}
	for _, row := range new(reference).rows() {
		var labels []string
		for _, l := range row.labels {
			labels = append(labels, "`"+l.name+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", row.name, strings.Join(labels, ", "), row.help, referenceOurs[row.name])
	}
	for _, f := range referenceFigures {
		fmt.Fprintf(&b, "| `%s` | | as headgate's own | `%s` |\n", f.name, f.figure)
	}
	return b.String()
}

// referenceOurs are the names that headgate has for what the rows of the reference say.
var referenceOurs = map[string]string{
	"ratelimit_service_global_shadow_mode":      "–",
	"ratelimit_service_config_load_success":     "`headgate_rules_loads_total{result=\"ok\"}`",
	"ratelimit_service_config_load_error":       "`headgate_rules_loads_total{result=\"error\"}`",
	"ratelimit_service_should_rate_limit_error": "`headgate_degraded_requests_total`, `headgate_request_duration_seconds_count{result=\"invalid\"}`",
	"ratelimit_service_total_requests":          "`headgate_request_duration_seconds_count`",
	"ratelimit_service_response_time_seconds":   "`headgate_request_duration_seconds`",
}
