package telemetry

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-rls/headgate/notify"
)

// NotifyStats are the figures that the parts of notify-gateway keep.
type NotifyStats struct {
	ByRedis, Fallbacks, Lost     int64
	RedisUp                      bool
	SyncWaiting, RemovalsWaiting int
	OutboxWaiting                int64
	Recounts, Uncounted          int64
	PoolOpen, PoolInUse, PoolMax int
	PoolWaits                    int64
}

// Notify holds the metrics of a program of the notification gateway.
type Notify struct {
	registry *prometheus.Registry
	sends    *prometheus.HistogramVec
	build    *prometheus.GaugeVec
}

// sendBuckets reach from a call to Redis to the longest request.
var sendBuckets = append(slices.Clone(latency), 2, 5, 10)

// NewNotifyGateway returns the metrics of notify-gateway, whose figures read returns.
func NewNotifyGateway(version string, read func() NotifyStats) *Notify {
	m := &Notify{registry: prometheus.NewRegistry()}
	register(m.registry, append(m.gatewayRows(), notifyFigures(read)...), nil)
	m.common(version)
	return m
}

// common registers what every program has.
func (m *Notify) common(version string) {
	register(m.registry, m.commonRows(), nil)
	m.build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

func (m *Notify) commonRows() []row {
	return []row{gauges(&m.build, metric{name: "headgate_notify_build_info", labels: open("version"), help: "Always 1; the label has the version."})}
}

func (m *Notify) gatewayRows() []row {
	var outcomes []string
	for _, o := range notify.Outcomes() {
		outcomes = append(outcomes, string(o))
	}
	return []row{
		histograms(&m.sends, sendBuckets, metric{name: "headgate_notify_send_duration_seconds", labels: closed(nil, "outcome", outcomes...),
			help: "Time to answer a request to send, by what became of it."}),
	}
}

func notifyFigures(read func() NotifyStats) []row {
	stat := func(k kind, name, help string, f func(NotifyStats) float64) row {
		return figure(k, func() float64 { return f(read()) }, metric{name: name, help: help})
	}
	up := func(s NotifyStats) float64 {
		if s.RedisUp {
			return 1
		}
		return 0
	}
	return []row{
		stat(isCounter, "headgate_notify_redis_decisions_total", "Sends decided in Redis.", func(s NotifyStats) float64 { return float64(s.ByRedis) }),
		stat(isCounter, "headgate_notify_fallbacks_total", "Sends decided in the database because Redis did not answer.", func(s NotifyStats) float64 { return float64(s.Fallbacks) }),
		stat(isCounter, "headgate_notify_lost_units_total", "Units that were counted in Redis for messages that could not be delivered.", func(s NotifyStats) float64 { return float64(s.Lost) }),
		stat(isGauge, "headgate_notify_redis_up", "1 if Redis answered last, else 0; 0 without --redis.", up),
		stat(isGauge, "headgate_notify_sync_waiting_users", "Users whose count in Redis the database does not have yet.", func(s NotifyStats) float64 { return float64(s.SyncWaiting) }),
		stat(isGauge, "headgate_notify_removals_waiting_users", "Users whose hash in Redis is still to be removed after a change of their limit.", func(s NotifyStats) float64 { return float64(s.RemovalsWaiting) }),
		stat(isGauge, "headgate_notify_outbox_messages", "Messages that wait in the outbox, as of the last look.", func(s NotifyStats) float64 { return float64(s.OutboxWaiting) }),
		stat(isCounter, "headgate_notify_recounts_total", "Messages that a second transaction counted, as the commit of the first one failed.", func(s NotifyStats) float64 { return float64(s.Recounts) }),
		stat(isCounter, "headgate_notify_uncounted_total", "Messages that were published and could not be counted.", func(s NotifyStats) float64 { return float64(s.Uncounted) }),
		stat(isGauge, "headgate_notify_pool_connections", "Connections to the database.", func(s NotifyStats) float64 { return float64(s.PoolOpen) }),
		stat(isGauge, "headgate_notify_pool_busy_connections", "Connections to the database that are in use.", func(s NotifyStats) float64 { return float64(s.PoolInUse) }),
		stat(isGauge, "headgate_notify_pool_max_connections", "Most connections to the database.", func(s NotifyStats) float64 { return float64(s.PoolMax) }),
		stat(isCounter, "headgate_notify_pool_waits_total", "Waits for a connection to the database.", func(s NotifyStats) float64 { return float64(s.PoolWaits) }),
	}
}

// NotifySenderStats are the figures that notify-sender keeps.
type NotifySenderStats struct{ Sent, Skipped, Retried int64 }

// NewNotifySender returns the metrics of notify-sender, whose figures read returns.
func NewNotifySender(version string, read func() NotifySenderStats) *Notify {
	m := &Notify{registry: prometheus.NewRegistry()}
	register(m.registry, senderFigures(read), nil)
	m.common(version)
	return m
}

func senderFigures(read func() NotifySenderStats) []row {
	stat := func(name, help string, f func(NotifySenderStats) int64) row {
		return figure(isCounter, func() float64 { return float64(f(read())) }, metric{name: name, help: help})
	}
	return []row{
		stat("headgate_notify_sender_sent_total", "Messages that were sent.", func(s NotifySenderStats) int64 { return s.Sent }),
		stat("headgate_notify_sender_skipped_total", "Messages that were skipped: malformed, or given up.", func(s NotifySenderStats) int64 { return s.Skipped }),
		stat("headgate_notify_sender_retried_total", "Messages that could not be sent and wait for another try.", func(s NotifySenderStats) int64 { return s.Retried }),
	}
}

// Sent records what became of a request to send.
func (m *Notify) Sent(o notify.Outcome, took time.Duration) {
	m.sends.WithLabelValues(string(o)).Observe(took.Seconds())
}

// Handler serves the metrics in Prometheus' text format.
func (m *Notify) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes})
}

// NotifyTable renders the metrics of both programs as a Markdown table.
func NotifyTable() string {
	rows := slices.Concat(new(Notify).gatewayRows(), new(Notify).commonRows(), notifyFigures(nil), senderFigures(nil))
	var b strings.Builder
	b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
	for i := range rows {
		b.WriteString(rows[i].markdown())
	}
	return b.String()
}
