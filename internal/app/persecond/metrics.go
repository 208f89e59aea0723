package persecond

import (
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// worse are the figures of which the larger one counts for both stores. Others are added up.
var worse = []string{"headgate_breaker_open", "headgate_backend_slow", "headgate_redis_memory_used_ratio"}

// Figures returns those of two stores: series that name their store, and others for both together.
func Figures(main, second []metrics.Row) []metrics.Row {
	all := slices.Clone(main)
	for _, row := range second {
		if len(row.Labels) > 0 && row.Labels[0].Name == "backend" {
			all = append(all, row)
			continue
		}
		i := slices.IndexFunc(all, func(r metrics.Row) bool { return r.Name == row.Name })
		if i < 0 || row.Value == nil || all[i].Value == nil {
			continue
		}
		a, b := all[i].Value, row.Value
		all[i].Value = func() float64 { return a() + b() }
		if slices.Contains(worse, row.Name) {
			all[i].Value = func() float64 { return max(a(), b()) }
		}
	}
	return all
}
