package serve

import (
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/kit/metrics/prom"
)

// NewMetrics serves the metrics of a program: rows, and what every program has.
func NewMetrics(version string, rows []metrics.Row) http.Handler {
	r := prom.New()
	r.AddProcess()
	r.Add(metrics.Build(BuildName, version))
	r.Add(rows...)
	return r.Handler(true)
}

// BuildName is the name of the metric that says which program this is.
const BuildName = "headgate_notify_build_info"
