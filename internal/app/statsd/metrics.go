package statsd

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows are metrics of the sender itself.
func (s *Sender) Rows() []metrics.Row {
	return []metrics.Row{s.flushes.Row("headgate_statsd_flushes_total",
		"Flushes to --statsd, by result. The flush after a failed one sends what that did not.",
		metrics.Closed("result", "ok", "error"))}
}
