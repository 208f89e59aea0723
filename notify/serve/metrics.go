package serve

import (
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/kit/metrics/prom"
	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// NewMetrics serves the metrics of a program: rows, and what every program has.
func NewMetrics(version string, log *settings.Log, rows []metrics.Row) http.Handler {
	r := prom.New()
	r.AddProcess()
	r.Add(metrics.Build(BuildName, version), log.Lost())
	r.Add(rows...)
	return r.Handler(true)
}

// BuildName is the name of the metric that says which program this is.
const BuildName = "headgate_notify_build_info"
