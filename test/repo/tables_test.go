package repo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/descriptors/reference"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/notify/httpapi"
	"github.com/headgate-rls/headgate/notify/kafka"
	"github.com/headgate-rls/headgate/notify/pgstore"
	"github.com/headgate-rls/headgate/notify/rediscache"
	"github.com/headgate-rls/headgate/notify/serve"
)

// tableOf renders rows of metrics as a Markdown table.
func tableOf(rows []metrics.Row) string {
	var b strings.Builder
	b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
	for i := range rows {
		r := &rows[i]
		var labels []string
		for _, l := range r.Labels {
			text := l.Name
			if l.Values != nil {
				text += " (`" + strings.Join(l.Values, "`, `") + "`)"
			}
			labels = append(labels, text)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Name, r.Kind, strings.Join(labels, ", "),
			strings.ReplaceAll(r.Help, "|", `\|`))
	}
	return b.String()
}

// notifyMetrics are those of both programs of the notification gateway.
func notifyMetrics() string {
	return tableOf(slices.Concat(httpapi.NewMetrics().Rows(), []metrics.Row{metrics.Build(serve.BuildName, "")},
		new(rediscache.Cache).Rows(), new(pgstore.Store).Rows(), new(kafka.Consumer).Rows()))
}

// differences renders what envoyproxy/ratelimit decides differently as a Markdown table.
func differences() string {
	var b strings.Builder
	b.WriteString("| rules | the reference | headgate |\n|---|---|---|\n")
	for i := range reference.Differences {
		d := &reference.Differences[i]
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d.What, d.Reference, d.Headgate)
	}
	return b.String()
}
