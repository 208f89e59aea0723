package statsd

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows are metrics of the sender itself.
func (s *Sender) Rows() []metrics.Row {
	return []metrics.Row{{Name: "headgate_statsd_flushes_total", Kind: metrics.IsCounter,
		Labels: metrics.Closed("result", "ok", "error"),
		Help:   "Flushes to --statsd, by result. The flush after a failed one sends what that did not.",
		Each: func(emit metrics.Emit) {
			emit([]string{"ok"}, float64(s.ok.Value()), nil)
			emit([]string{"error"}, float64(s.failed.Value()), nil)
		}}}
}
