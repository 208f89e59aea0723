package httpapi

import (
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/notify"
)

// Metrics are how long requests to send take.
type Metrics struct {
	sends metrics.Histograms
	rows  []metrics.Row
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	m := new(Metrics)
	var outcomes []string
	for _, o := range notify.Outcomes() {
		outcomes = append(outcomes, string(o))
	}
	bounds := append(slices.Clone(metrics.Latency), 2, 5, 10) // from a call to Redis to the longest request
	m.rows = []metrics.Row{
		m.sends.Row("headgate_notify_send_duration_seconds", "Time to answer a request to send, by what became of it.",
			bounds, metrics.Closed("outcome", outcomes...)),
	}
	return m
}

// Rows returns the table of the metrics.
func (m *Metrics) Rows() []metrics.Row { return m.rows }

// Sent records what became of a request to send, as [Config.Answer] does.
func (m *Metrics) Sent(o notify.Outcome, took time.Duration) { m.sends.Of(string(o)).Took(took, 1) }
