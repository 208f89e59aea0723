package documented

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/internal/app/compat"
	"github.com/headgate-rls/headgate/internal/app/refmetrics"
	"github.com/headgate-rls/headgate/internal/app/tracing"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// ReferenceMetrics renders the metrics of envoyproxy/ratelimit that headgate serves as a Markdown table. figured are
// the figures of all stores and layers, under headgate's own names.
func ReferenceMetrics(figured []metrics.Row) string {
	var b strings.Builder
	b.WriteString("| name | labels | meaning | headgate's own |\n|---|---|---|---|\n")
	for _, row := range refmetrics.New(nil, nil, refmetrics.Config{LocalCache: true}).Rows() {
		var labels []string
		for _, name := range row.Labels.Names() {
			labels = append(labels, quoted(name))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", row.Name, strings.Join(labels, ", "), row.Help,
			cell(cmp.Or(ownNames[row.Name], "–")))
	}
	for _, row := range refmetrics.Figures(figured, figured) {
		fmt.Fprintf(&b, "| `%s` | | as headgate's own | %s |\n", row.Name, ownNames[row.Name])
	}
	return b.String()
}

// ownNames are the names that headgate has for what the reference's metrics say.
var ownNames = map[string]string{
	"ratelimit_service_rate_limit_over_limit": "`headgate_decisions_total{outcome=~\"over_limit|shadow_over_limit\"}`, " +
		"in descriptors",
	"ratelimit_service_rate_limit_within_limit": "`headgate_decisions_total{outcome=\"ok\"}`, in descriptors",
	"ratelimit_service_rate_limit_shadow_mode": "`headgate_decisions_total{outcome=\"shadow_over_limit\"}`, " +
		"in descriptors",
	"ratelimit_service_config_load_success": "`headgate_rules_loads_total{result=\"ok\"}`",
	"ratelimit_service_config_load_error":   "`headgate_rules_loads_total{result=\"error\"}`",
	"ratelimit_service_should_rate_limit_error": "`headgate_degraded_requests_total`, " +
		"`headgate_request_duration_seconds_count{result=\"invalid\"}`",
	"ratelimit_service_total_requests":          "`headgate_request_duration_seconds_count`",
	"ratelimit_service_response_time_seconds":   "`headgate_request_duration_seconds`",
	"ratelimit_redis_pool_cx_active":            "`headgate_redis_pool_connections`",
	"ratelimit_redis_per_second_pool_cx_active": "`headgate_redis_pool_connections`",
}

// Tracing renders the variables of OpenTelemetry as a Markdown table.
func Tracing() string {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, v := range tracing.Variables {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, quoted(v.Default), v.Meaning)
	}
	return b.String()
}

// Environment renders what becomes of each variable of envoyproxy/ratelimit as a Markdown table.
func Environment() string {
	var b strings.Builder
	b.WriteString("| variable | default of the reference | headgate |\n|---|---|---|\n")
	for i := range compat.Variables {
		v := &compat.Variables[i]
		what := map[compat.Effect]string{compat.Warned: "a warning: ", compat.Ignored: "ignored: ",
			compat.Refused: "true is an error: "}[v.Effect]
		if v.Effect == compat.Mapped {
			made := compat.Makes(v.Name)
			for i := range made {
				made[i] = quoted(made[i])
			}
			what = strings.Join(made, ", ")
			if v.Note != "" {
				what += "; "
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, quoted(v.Default), cell(what+v.Note))
	}
	return b.String()
}
