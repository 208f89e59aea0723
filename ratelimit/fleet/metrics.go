package fleet

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the metrics of the fleet.
func (f *Fleet) Rows() []metrics.Row {
	return []metrics.Row{f.failed.Row("headgate_tops_failures_total",
		"Attempts to write this replica's most refused and nearest keys to the store that failed.")}
}
