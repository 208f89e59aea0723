package telemetry

import (
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/backends"
)

// Table renders every metric as a Markdown table, for docs/reference.md: those
// of this package and the figures of stores and layers.
func Table(figures []backends.Figure) string {
	rows := slices.Concat(new(Metrics).rows(), new(unaryStats).rows(), new(inFlight).rows(), figureRows(figures),
		xdsRows(nil), policyRows(nil), traceRows(nil), new(slotRecorder).rows(), slotPoolRows(nil))
	var b strings.Builder
	b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
	for i := range rows {
		b.WriteString(rows[i].markdown())
	}
	return b.String()
}
