package refmetrics

import (
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Bounds of the series of hits, whose labels come from rules and from requests.
const (
	maxHitSeries = 10_000
	maxHitBytes  = 8 << 20 // of all labels together
	maxHitLabel  = 2 << 10 // of one label
)

// Metrics are those of the reference. They are a [ratelimit.RulesSink]. Series of hits are shared by all rules
// that have the same labels, as there, and go when no rule has them any more.
type Metrics struct {
	shadow   metrics.Counter
	requests metrics.Counter
	invalid  metrics.Counter
	times    metrics.Histograms
	rows     []metrics.Row

	log    *slog.Logger
	conf   Config
	warned atomic.Bool
	byRule sync.Map // *hits by *descriptors.Rule, of rules whose labels have no values

	notFound     domains
	known, asked metrics.Counter // decisions of limits, by whether this process knew them to be used up

	mu     sync.RWMutex
	series map[hitLabels]*hitSeries
	bytes  int // of the labels of series
}

// A Config says which metrics there are.
type Config struct {
	NearLimit  float32 // the part of a limit from which hits are near it
	Levels     bool    // whether there is a series for each level of a rule, for [Metrics.StatsD]; rows add them up
	LocalCache bool    // whether there are those of the reference's local cache
}

// hitLabels are the labels of a series of hits. Empty ones are left out. rest are the levels below, which StatsD has
// and Prometheus has not.
type hitLabels struct{ domain, key1, key2, rest string }

func (l hitLabels) size() int { return len(l.domain) + len(l.key1) + len(l.key2) + len(l.rest) }

// A hitSeries is what is counted under some labels.
type hitSeries struct {
	hits
	rules map[rule]bool // that count here; empty: requests, or domains without room, do
}

// hitStats are the statistics of hits: the table of what a series has.
var hitStats = [...]struct {
	name, help string
	value      func(*hits) *atomic.Uint64
}{
	{"total_hits", "Hits that were asked for.", func(c *hits) *atomic.Uint64 { return &c.total }},
	{"over_limit", "Hits beyond the limit, in shadow mode too.", func(c *hits) *atomic.Uint64 { return &c.over }},
	{"near_limit", "Hits between --near-limit-ratio of the limit and the limit.",
		func(c *hits) *atomic.Uint64 { return &c.near }},
	{"within_limit", "Hits of descriptors that were admitted.", func(c *hits) *atomic.Uint64 { return &c.within }},
	{"shadow_mode", "Hits beyond a limit in shadow mode.", func(c *hits) *atomic.Uint64 { return &c.shadow }},
	{"total_negative_hits", "Hits that were given back.", func(c *hits) *atomic.Uint64 { return &c.negative }},
	{localStat, "Hits beyond a limit that this process knew to be used up, with --reference-local-cache.",
		func(c *hits) *atomic.Uint64 { return &c.local }},
}

// localStat is the statistic that only the reference's local cache has.
const localStat = "over_limit_with_local_cache"

// A rule is what metrics call one.
type rule struct{ domain, path string }

// figures are metrics of the reference whose values figures of stores and layers have; second: those of the store of
// limits per second.
var figures = []struct {
	name, figure string
	second       bool
}{
	{"ratelimit_redis_pool_cx_active", "headgate_redis_pool_connections", false},
	{"ratelimit_redis_per_second_pool_cx_active", "headgate_redis_pool_connections", true},
}

// New returns the metrics of the reference for services that count in decided, too.
func New(decided *ratelimit.Metrics, log *slog.Logger, conf Config) *Metrics {
	m := &Metrics{log: log, conf: conf, series: map[hitLabels]*hitSeries{}}
	method := metrics.Closed("grpc_method", "ShouldRateLimit")
	for i := range m.hitStats() {
		m.rows = append(m.rows, metrics.Row{Name: "ratelimit_service_rate_limit_" + hitStats[i].name, Help: hitStats[i].help,
			Kind:   metrics.IsCounter,
			Labels: metrics.Open("domain", "key1", "key2"), Ragged: true,
			Each: func(emit metrics.Emit) { m.each(hitStats[i].value, emit) }})
	}
	m.rows = append(m.rows,
		metrics.Row{Name: "ratelimit_service_rate_limit_domain_not_found",
			Help: "Descriptors of domains that no rules have. The first 100 such domains have series of their own; the rest " +
				"are counted under domain \"(other)\".",
			Kind: metrics.IsCounter, Labels: metrics.Open("domain"), Each: m.notFound.each},
		m.shadow.Row("ratelimit_service_global_shadow_mode", "Requests that only --shadow-mode admitted."),
		metrics.CounterOf("ratelimit_service_config_load_success", "Rules put in force.", func() int64 {
			ok, _ := decided.Loads()
			return ok
		}),
		metrics.CounterOf("ratelimit_service_config_load_error", "Attempts to load rules that failed.", func() int64 {
			_, failed := decided.Loads()
			return failed
		}),
		metrics.Row{Name: "ratelimit_service_should_rate_limit_error",
			Help: "Requests that the backend failed to decide, and invalid ones.",
			Kind: metrics.IsCounter, Labels: metrics.Closed("err_type", "redis_error", "service_error"),
			Each: func(emit metrics.Emit) {
				emit([]string{"redis_error"}, float64(decided.Degraded()), nil)
				emit([]string{"service_error"}, float64(m.invalid.Value()), nil)
			}},
		metrics.Row{Name: "ratelimit_service_total_requests", Help: "Calls by gRPC.", Kind: metrics.IsCounter, Labels: method,
			Each: func(emit metrics.Emit) { emit([]string{"ShouldRateLimit"}, float64(m.requests.Value()), nil) }},
		m.times.Row("ratelimit_service_response_time_seconds", "Time to answer a call by gRPC.", buckets, method))
	if conf.LocalCache {
		m.rows = append(m.rows, m.localRows()...)
	}
	return m
}

// hitStats are those of the table that there are.
func (m *Metrics) hitStats() int {
	if m.conf.LocalCache {
		return len(hitStats)
	}
	return len(hitStats) - 1
}

// localRows are the metrics of the reference's local cache.
func (m *Metrics) localRows() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("ratelimit_localcache_hitCount",
			"Descriptors refused by a limit that this process knew to be used up, with --reference-local-cache.",
			func() int64 { return m.known.Value() }),
		metrics.GaugeOf("ratelimit_localcache_missCount", "Descriptors with a limit that it did not know to be used up, "+
			"with --reference-local-cache.", func() int64 { return m.asked.Value() }),
		metrics.GaugeOf("ratelimit_localcache_lookupCount", "Both together, with --reference-local-cache.",
			func() int64 { return m.known.Value() + m.asked.Value() }),
	}
}

// buckets are those that Prometheus has by default.
var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Rows returns the table of the metrics, but those of figures.
func (m *Metrics) Rows() []metrics.Row { return m.rows }

// Figures returns those of the rows of a store, and of a second one for limits per second, that the reference has,
// under its names.
func Figures(rows, second []metrics.Row) (list []metrics.Row) {
	for _, f := range figures {
		from := rows
		if f.second {
			from = second
		}
		for _, row := range from {
			if row.Name == f.figure {
				row.Name = f.name
				list = append(list, row)
			}
		}
	}
	return list
}

// Observe returns a function that counts answered calls by gRPC, before next does.
func (m *Metrics) Observe(next ratelimit.Observe) ratelimit.Observe {
	times := m.times.Of("ShouldRateLimit")
	return func(took time.Duration, r ratelimit.CallResult, calls int) {
		m.requests.Add(int64(calls))
		times.Took(took, calls)
		if r == ratelimit.CallInvalid {
			m.invalid.Add(int64(calls))
		}
		next(took, r, calls)
	}
}

// each emits a statistic of all series, by the labels that Prometheus gets. Labels that are empty are left out.
func (m *Metrics) each(value func(*hits) *atomic.Uint64, emit metrics.Emit) {
	m.mu.RLock()
	sums := make(map[hitLabels]uint64, len(m.series))
	for l, s := range m.series {
		l.rest = ""
		sums[l] += value(&s.hits).Load()
	}
	m.mu.RUnlock()
	for l, n := range sums {
		labels := []string{l.domain, l.key1, l.key2}
		switch {
		case l.key1 == "":
			labels = labels[:1]
		case l.key2 == "":
			labels = labels[:2]
		}
		emit(labels, float64(n), nil)
	}
}

// of returns the counters of a label: the rule's, or one with values of the request. path is that of the rule, "" if
// the request brings the limit. Beyond the bounds, hits are counted under their domain alone, and beyond those of
// domains under none.
func (m *Metrics) of(domain, path, label string) *hits {
	labels := labelsOfHits(domain, label)
	if !m.conf.Levels {
		labels.rest = ""
	}
	m.mu.RLock()
	s := m.series[labels]
	known := s != nil && (path == "" || s.rules[rule{domain, path}])
	m.mu.RUnlock()
	if known {
		return &s.hits
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range []hitLabels{labels, {domain: labels.domain}} {
		if s = m.series[l]; s == nil && m.room(l) {
			s = &hitSeries{rules: map[rule]bool{}}
			m.series[l] = s
			m.bytes += l.size()
		}
		if s == nil {
			continue
		}
		if path != "" {
			s.rules[rule{domain, path}] = true
		}
		return &s.hits
	}
	return new(hits) // which nobody sees
}

// room reports whether there may be one more series. Domains keep a tenth for themselves.
func (m *Metrics) room(l hitLabels) bool {
	most, bytes := maxHitSeries*9/10, maxHitBytes*9/10
	if l.key1 == "" {
		most, bytes = maxHitSeries, maxHitBytes
	}
	if len(m.series) < most && m.bytes+l.size() <= bytes {
		return true
	}
	if !m.warned.Swap(true) {
		m.log.Warn("too many series of hits by rule; counting the rest by domain", "series", len(m.series), "bytes", m.bytes)
	}
	return false
}

// RulesLoaded implements [ratelimit.RulesSink]: it drops the series of rules that are not in force, and those of
// requests.
func (m *Metrics) RulesLoaded(set *descriptors.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.byRule.Clear()
	inForce := map[rule]bool{}
	for _, s := range m.series {
		for key := range s.rules {
			inForce[key] = false
		}
	}
	for _, r := range set.Rules() {
		if _, ok := inForce[rule{r.Domain, r.Path}]; ok {
			inForce[rule{r.Domain, r.Path}] = true
		}
	}
	for l, s := range m.series {
		maps.DeleteFunc(s.rules, func(key rule, _ bool) bool { return !inForce[key] })
		if len(s.rules) == 0 {
			delete(m.series, l)
			m.bytes -= l.size()
		}
	}
	m.warned.Store(false)
}

var ipv4 = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

var statName = strings.NewReplacer(":", "_", "|", "_")

// labelsOfHits makes the labels of the reference's statistic: its name is divided at dots.
func labelsOfHits(domain, label string) hitLabels {
	name := ipv4.ReplaceAllStringFunc(statName.Replace(domain+"."+label),
		func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	parts := append(strings.SplitN(name, ".", 4), "", "")[:4]
	for i, p := range parts { // as valid UTF-8 of its own memory
		parts[i] = strings.Clone(strings.ToValidUTF8(p[:min(len(p), maxHitLabel)], "_"))
	}
	return hitLabels{parts[0], parts[1], parts[2], parts[3]}
}
