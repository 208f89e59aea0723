package tracing

import (
	"sync/atomic"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Rows returns the metrics of spans. A nil Tracing has the same table.
func (t *Tracing) Rows() []metrics.Row {
	figure := func(of func(*exporter) *atomic.Int64) func() int64 {
		return func() int64 { return of(t.exporter).Load() }
	}
	return []metrics.Row{
		metrics.CounterOf("headgate_trace_spans_total",
			"Spans that were made. Those that were neither sent nor failed wait, or were dropped because too many waited.",
			figure(func(e *exporter) *atomic.Int64 { return &e.ended })),
		metrics.CounterOf("headgate_trace_sent_spans_total", "Spans that the collector took.",
			figure(func(e *exporter) *atomic.Int64 { return &e.sent })),
		metrics.CounterOf("headgate_trace_failed_spans_total", "Spans that could not be sent to the collector.",
			figure(func(e *exporter) *atomic.Int64 { return &e.failed })),
	}
}
