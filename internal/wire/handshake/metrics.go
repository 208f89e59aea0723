package handshake

import (
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// failedRow is the metric of handshakes that failed.
var failedRow = metrics.Row{Name: "headgate_tls_handshake_failures_total",
	Labels: metrics.Open("transport").Closed("reason", reasonNames()...),
	Help:   "TLS handshakes that failed, by port and reason. Requests of such clients are not limited if they fail open."}

// reasonNames are the names of reasons, each once.
func reasonNames() (names []string) {
	for _, r := range reasons {
		if !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}

// Rows returns the table of the metrics.
func (f *Failures) Rows() []metrics.Row { return []metrics.Row{f.row} }
