package refmetrics

import (
	"runtime"

	"github.com/headgate-rls/headgate/internal/app/statsd"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// statNames are the reference's names in StatsD of those rows whose names there are not made of labels alone.
var statNames = map[string]string{
	"ratelimit_service_rate_limit_domain_not_found": "ratelimit.service.rate_limit.{}.domain_not_found",
	"ratelimit_service_global_shadow_mode":          "ratelimit.service.global_shadow_mode",
	"ratelimit_service_config_load_success":         "ratelimit.service.config_load_success",
	"ratelimit_service_config_load_error":           "ratelimit.service.config_load_error",
	"ratelimit_service_should_rate_limit_error":     "ratelimit.service.call.should_rate_limit.{}",
	"ratelimit_service_total_requests":              "ratelimit_server.{}.total_requests",
	"ratelimit_service_response_time_seconds":       "ratelimit_server.{}.response_time",
	"ratelimit_redis_pool_cx_active":                "ratelimit.redis_pool.cx_active",
	"ratelimit_redis_per_second_pool_cx_active":     "ratelimit.redis_per_second_pool.cx_active",
	"ratelimit_localcache_hitCount":                 "ratelimit.localcache.hitCount",
	"ratelimit_localcache_missCount":                "ratelimit.localcache.missCount",
	"ratelimit_localcache_lookupCount":              "ratelimit.localcache.lookupCount",
}

// StatsD returns the metrics as the reference sends them to StatsD. Figures are the rows that [Figures] returned. There
// the name of a rule has all of its levels, for which New was told to keep them.
func (m *Metrics) StatsD(figures []metrics.Row) (list []statsd.Metric) {
	for i := range m.hitStats() {
		list = append(list, statsd.Metric{Name: "ratelimit.service.rate_limit.{}." + hitStats[i].name,
			Row: metrics.Row{Kind: metrics.IsCounter, Each: func(emit metrics.Emit) {
				m.mu.RLock()
				defer m.mu.RUnlock()
				for l, s := range m.series {
					emit([]string{l.domain, l.key1, l.key2, l.rest}, float64(hitStats[i].value(&s.hits).Load()), nil)
				}
			}}})
	}
	for _, row := range append(m.rows[m.hitStats():len(m.rows):len(m.rows)], figures...) {
		if name := statNames[row.Name]; name != "" {
			list = append(list, statsd.Metric{Name: name, Row: row})
		}
	}
	return append(list, goMetric(metrics.IsGauge, func(m *runtime.MemStats) map[string]uint64 {
		return map[string]uint64{"alloc": m.Alloc, "sys": m.Sys, "heapAlloc": m.HeapAlloc, "heapSys": m.HeapSys,
			"heapIdle": m.HeapIdle, "heapInuse": m.HeapInuse, "heapReleased": m.HeapReleased, "heapObjects": m.HeapObjects,
			"nextGC": m.NextGC, "lastGC": m.LastGC, "gcCPUPercent": uint64(m.GCCPUFraction * 100),
			"numGoroutine": uint64(runtime.NumGoroutine())}
	}), goMetric(metrics.IsCounter, func(m *runtime.MemStats) map[string]uint64 {
		return map[string]uint64{"totalAlloc": m.TotalAlloc, "mallocs": m.Mallocs, "frees": m.Frees,
			"pauseTotalNs": m.PauseTotalNs, "numGC": uint64(m.NumGC)}
	}))
}

// goMetric is a metric of the Go runtime, as the reference sends it.
func goMetric(kind metrics.Kind, values func(*runtime.MemStats) map[string]uint64) statsd.Metric {
	return statsd.Metric{Name: "ratelimit.go.{}", Row: metrics.Row{Kind: kind, Each: func(emit metrics.Emit) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		for name, v := range values(&m) {
			emit([]string{name}, float64(v), nil)
		}
	}}}
}
