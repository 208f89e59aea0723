package accesslog

import (
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Metrics count what happens to access logs.
type Metrics struct {
	events *metrics.Series
	rows   []metrics.Row
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	var events metrics.Counters
	row := events.Row("headgate_access_log_total", "Entries of Envoy's access log (renews, releases, ignored, "+
		"malformed, dropped) and its streams (opened, closed, refused).",
		metrics.Closed("event", metrics.Texts(0, leases.NumLogEvents)...))
	return &Metrics{events.Hold(), []metrics.Row{row}}
}

// Rows returns the table of the metrics.
func (m *Metrics) Rows() []metrics.Row { return m.rows }

// Count counts n events, as [Config.Count] does.
func (m *Metrics) Count(e leases.LogEvent, n int) { m.events.At(int(e)).Add(int64(n)) }
