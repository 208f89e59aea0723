package server

import (
	"cmp"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/internal/app/candidate"
	"github.com/headgate-rls/headgate/internal/app/capture"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/persecond"
	"github.com/headgate-rls/headgate/internal/app/refmetrics"
	"github.com/headgate-rls/headgate/internal/app/statsd"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/kit/metrics/prom"
	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/accesslog"
	"github.com/headgate-rls/headgate/internal/wire/handshake"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/ratelimit"
)

// serverMetrics are what the parts of a server count in. A part that is opened adds its own rows.
type serverMetrics struct {
	*prom.Registry
	decisions *ratelimit.Metrics
	logs      *accesslog.Metrics
	panics    *background.Panics
	files     fileMetrics
	answers   metrics.Counters    // of transports that do not count themselves
	reference *refmetrics.Metrics // nil without --reference-metrics
	figures   []metrics.Row       // of stores, under the names of the reference
}

func newMetrics(version string) *serverMetrics {
	m := &serverMetrics{
		Registry: prom.New(), decisions: ratelimit.NewMetrics(), logs: accesslog.NewMetrics(), panics: background.NewPanics(),
	}
	m.AddProcess()
	m.Add(slices.Concat(m.decisions.Rows(), m.logs.Rows(), m.panics.Rows(), m.files.rows())...)
	m.Add(metrics.Build(buildName, version), m.answers.Row(unary.Answers.Name, unary.Answers.Help, unary.Answers.Labels))
	return m
}

const buildName = "headgate_build_info"

// Rows returns the table of what the server measures itself, for the documentation.
func Rows() []metrics.Row {
	return slices.Concat(new(fileMetrics).rows(), memoryRows(nil), handshake.NewFailures(nil).Rows(),
		web.NewRefusals(nil).Rows(), web.NewTurns().Rows(), new(capture.Hub).Rows(), new(candidate.Candidate).Rows(),
		new(statsd.Sender).Rows(),
		new(certWatch).rows(), []metrics.Row{web.NoMemory, removedRow(new(metrics.Counter)), new(settings.Log).Lost(),
			metrics.Build(buildName, "")})
}

// addReference adds the metrics of envoyproxy/ratelimit.
func (m *serverMetrics) addReference(log *slog.Logger, conf *config.Config) {
	near, _ := strconv.ParseFloat(conf.NearLimitRatio, 32) // checked
	m.reference = refmetrics.New(m.decisions, log, refmetrics.Config{NearLimit: float32(near),
		Levels: conf.StatsD.Address != "", LocalCache: conf.ReferenceLocalCache})
	m.Add(m.reference.Rows()...)
}

// addFigures adds the metrics of a store and its layers, and of a second one for limits per second, if there is one.
func (m *serverMetrics) addFigures(rows, second []metrics.Row) {
	m.Add(persecond.Figures(rows, second)...)
	if m.reference != nil {
		m.figures = refmetrics.Figures(rows, second)
		m.Add(m.figures...)
	}
}

// openStatsD adds what sends the metrics of envoyproxy/ratelimit to --statsd, if that is set.
func (s *server) openStatsD() {
	conf, m := &s.conf.StatsD, s.metrics
	if conf.Address == "" {
		return
	}
	sender := statsd.New(statsd.Config{Address: conf.Address, Protocol: conf.Protocol, Interval: conf.Interval,
		Tags: conf.Tags, Metrics: m.reference.StatsD(m.figures), Log: s.log})
	m.Add(sender.Rows()...)
	s.additions = append(s.additions, &addition{run: sender.Run})
}

// requests returns what records calls of a transport.
func (m *serverMetrics) requests(transport string) ratelimit.Observe {
	observe := m.decisions.Requests(transport)
	if m.reference == nil || transport == "json" {
		return observe
	}
	return m.reference.Observe(observe)
}

// handler serves the metrics. OpenMetrics would rename the reference's counters to end with _total.
func (m *serverMetrics) handler() http.Handler { return m.Handler(m.reference == nil) }

// fileMetrics are what became of files of rules when they were last read.
type fileMetrics struct {
	failed atomic.Bool
	mu     sync.Mutex
	errors map[string]int
}

// maxFiles bounds the files that have a series of their own. Errors of the rest are counted under file "(other)".
const maxFiles = 100

func (m *fileMetrics) rows() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_rules_last_load_successful",
			"1 if all files of rules were put in force when they were last read, else 0.",
			func() int { return metrics.Truth(!m.failed.Load()) }),
		{Name: "headgate_rules_file_errors", Kind: metrics.IsGauge, Labels: metrics.Open("file"), Each: m.each,
			Help: "Errors in a file of rules, whose domains stay as they were. Files without errors have no series; " +
				"at most 100 files have their own."},
	}
}

// set notes how many errors each file has.
func (m *fileMetrics) set(errors map[string]int) {
	bounded := map[string]int{}
	for i, file := range slices.Sorted(maps.Keys(errors)) {
		n := errors[file]
		if i >= maxFiles {
			file = "(other)"
		}
		bounded[strings.ToValidUTF8(file, "_")] += n
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors = bounded
}

func (m *fileMetrics) each(emit metrics.Emit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for file, n := range m.errors {
		emit([]string{file}, float64(n), nil)
	}
}

// rulesFailed notes that rules could not be loaded.
func (m *serverMetrics) rulesFailed() {
	m.decisions.RulesFailed()
	m.files.failed.Store(true)
}

// rulesRead notes that all files of rules are in force as they are.
func (m *serverMetrics) rulesRead() { m.files.failed.Store(false) }

// memoryRows are the metrics of bounds; of nil they are the table.
func memoryRows(b *bounds) []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_memory_limit_bytes", "Memory that the process may use: the least of the limits of its "+
			"control group and their parents, of the machine, and of GOMEMLIMIT. 0: no limit is known.",
			func() int64 { return b.limit.Bytes % math.MaxInt64 }),
		metrics.GaugeOf("headgate_open_files_limit", "Files and connections that the process may have open. Clients have "+
			"no more than seven eighths of them. 0: no limit is known.",
			func() int64 { return b.limit.Files % math.MaxInt64 }),
		metrics.GaugeOf("headgate_buffered_limit_bytes", "What headgate_buffered_bytes may be: a quarter of the memory "+
			"limit, and 256 MiB at most.", func() int64 { return b.pool.Limit() }),
		metrics.GaugeOf("headgate_buffered_bytes", "Memory of connections on all ports: open calls, requests and answers "+
			"that wait. Above half of its limit each connection has a fair share.", func() int64 { return b.pool.Used() }),
	}
}

// rows are the metrics of the certificates in use, and of renewed ones.
func (w *certWatch) rows() []metrics.Row {
	return []metrics.Row{
		{Name: "headgate_certificate_not_after_seconds", Kind: metrics.IsGauge, Labels: metrics.Open("use", "file"),
			Help: "When a certificate in use expires, or the last one of a file of authorities, as Unix time: of a " +
				"listener, or of a client of a store or a control plane.", Each: eachValidity},
		{Name: "headgate_certificate_renewal_refused", Kind: metrics.IsGauge, Labels: metrics.Open("listener", "file"),
			Help: "1 while the changed files of a listener's certificate cannot be used, so that the old certificate is, " +
				"else 0.", Each: w.eachRefusal},
	}
}

func eachValidity(emit metrics.Emit) {
	for _, v := range certs.InUse() {
		emit([]string{string(v.Use), v.File}, float64(v.Ends.Unix()), nil)
	}
}

func (w *certWatch) eachRefusal(emit metrics.Emit) {
	for _, f := range w.followed() {
		emit([]string{f.flags, f.cert}, float64(metrics.Truth(f.refusal() != "")), nil)
	}
}

// removedRow is the metric of domains that the control plane removed while they were asked about.
func removedRow(c *metrics.Counter) metrics.Row {
	return c.Row("headgate_xds_removed_domains_in_use_total", "Domains that the control plane removed although they were "+
		"asked about within the minute before. Their requests are not limited any more.")
}

// addHTTP adds the metrics of the connections of a listener of HTTP.
func (m *serverMetrics) addHTTP(name string, stats *web.Stats) {
	m.Add(one(unary.Connections, name, stats.Open.Load), one(unary.Accepted, name, stats.Accepted.Value),
		one(unary.Displaced, name, stats.Displaced.Value), one(unary.Timeouts, name, stats.Timeouts.Value),
		one(web.NoMemory, name, stats.NoMemory.Value))
}

// countHTTP counts the answers of a handler under transport.
func (m *serverMetrics) countHTTP(transport string, h http.Handler) http.Handler {
	for _, code := range []int{200, 400, 403, 413, 429, 503} {
		m.answers.Of(transport, strconv.Itoa(code))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &codeWriter{ResponseWriter: w}
		defer func() { m.answers.Of(transport, strconv.Itoa(cmp.Or(c.code, http.StatusOK))).Inc() }()
		h.ServeHTTP(c, r)
	})
}

// A codeWriter notes the status of an answer.
type codeWriter struct {
	http.ResponseWriter
	code int // 0 until the header is written
}

func (c *codeWriter) WriteHeader(code int) {
	if c.code == 0 && code >= 200 {
		c.code = code
	}
	c.ResponseWriter.WriteHeader(code)
}

// Write sends status 200 unless another status was sent.
func (c *codeWriter) Write(p []byte) (int, error) {
	c.code = cmp.Or(c.code, http.StatusOK)
	return c.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (c *codeWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
