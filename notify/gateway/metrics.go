package gateway

import (
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/notify/httpapi"
	"github.com/headgate-rls/headgate/notify/kafka"
	"github.com/headgate-rls/headgate/notify/pgstore"
	"github.com/headgate-rls/headgate/notify/rediscache"
	"github.com/headgate-rls/headgate/notify/serve"
)

// Metrics returns the table of what both programs measure.
func Metrics() []metrics.Row {
	return slices.Concat(httpapi.NewMetrics().Rows(), []metrics.Row{metrics.Build(serve.BuildName, "")},
		new(rediscache.Cache).Rows(), new(pgstore.Store).Rows(), new(kafka.Consumer).Rows())
}
