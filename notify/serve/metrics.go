package serve

import (
	"net/http"
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/kit/metrics/prom"
	"github.com/headgate-rls/headgate/notify/httpapi"
	"github.com/headgate-rls/headgate/notify/kafka"
	"github.com/headgate-rls/headgate/notify/pgstore"
	"github.com/headgate-rls/headgate/notify/rediscache"
)

// newMetrics serves the metrics of a program: rows, and what every program has.
func newMetrics(version string, rows []metrics.Row) http.Handler {
	r := prom.New()
	r.AddProcess()
	r.Add(metrics.Build(buildName, version))
	r.Add(rows...)
	return r.Handler(true)
}

const buildName = "headgate_notify_build_info"

// Metrics returns the table of what both programs measure.
func Metrics() []metrics.Row {
	return slices.Concat(httpapi.NewMetrics().Rows(), []metrics.Row{metrics.Build(buildName, "")},
		new(rediscache.Cache).Rows(), new(pgstore.Store).Rows(), new(kafka.Consumer).Rows())
}
