package chart

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A condition is what makes an alert fire: series whose values, or whose growth in a minute where grows
// is set, are on while the condition holds, and off while it does not.
type condition struct {
	series  string // without the labels namespace and job
	off, on string
	grows   bool
}

const (
	asked     = `headgate_request_duration_seconds_count{result="ok"}`
	refused   = `headgate_decisions_total{domain="shop", rule="r", outcome="over_limit"}`
	admitted  = `headgate_decisions_total{domain="shop", rule="r", outcome="ok"}`
	unknown   = `headgate_decisions_total{domain="", outcome="no_rule"}`
	acquired  = `headgate_leases_total{event="acquired"}`
	lost      = `headgate_leases_total{event="lost"}`
	slotAsked = `headgate_slots_request_duration_seconds_count{outcome="new"}`
)

// conditions is by alert. Each alert has a job of its own.
var conditions = map[string][]condition{
	"HeadgateDegraded": {{asked, "600", "600", true}, {`headgate_degraded_requests_total`, "0", "600", true}},
	"HeadgateSlow": {{asked, "600", "600", true},
		{`headgate_request_duration_seconds_bucket{le="0.02"}`, "600", "0", true}},
	"HeadgateDown":                {{`headgate_build_info`, "1", "stale", false}},
	"HeadgateReplicaAway":         {{`headgate_build_info`, "1", "1", false}, {`up`, "1", "0", false}},
	"HeadgateNotAsked":            {{asked, "600", "0", true}},
	"HeadgateCertificateEndsSoon": {{`headgate_certificate_not_after_seconds`, "99999999", "90000", false}},
	"HeadgateCertificateExpired":  {{`headgate_certificate_not_after_seconds`, "99999999", "1", false}},
	"HeadgatePoliciesUnusable":    {{`headgate_policies_unusable`, "0", "1", false}},
	"HeadgateRulesNotLoaded":      {{`headgate_rules_last_load_successful`, "1", "0", false}},
	"HeadgateRulesDiffer": {{`headgate_rules_hash{instance="a"}`, "7", "7", false},
		{`headgate_rules_hash{instance="b"}`, "7", "8", false}},
	"HeadgatePoliciesOld":      {{`headgate_policies_age_seconds`, "1", "70", false}},
	"HeadgatePoliciesRejected": {{`headgate_policies_rejected_rows`, "0", "1", false}},
	"HeadgateControlPlaneAway": {{`headgate_xds_connected`, "1", "0", false}},
	"HeadgateBackendAway":      {{`headgate_breaker_open`, "0", "1", false}},
	"HeadgateBackendSlow":      {{`headgate_backend_slow`, "0", "1", false}},
	"HeadgateRedisEvicts":      {{`headgate_redis_evicted_keys_total`, "0", "1", true}},
	"HeadgateLaterFormat":      {{`headgate_backend_errors_total{class="later"}`, "0", "1", true}},
	"HeadgateRedisNearlyFull":  {{`headgate_redis_memory_used_ratio`, "0.5", "0.95", false}},
	"HeadgateBackendDeclines":  {{`headgate_backend_errors_total{class="declined"}`, "0", "1", true}},
	"HeadgateNothingMatches":   {{admitted, "60", "60", true}, {unknown, "0", "60", true}},
	"HeadgateDomainUnmatched": {{`headgate_calls_matched_total{domain="shop"}`, "60", "60", true},
		{`headgate_calls_unmatched_total{domain="shop"}`, "0", "60", true}},
	"HeadgateManyRefusals":    {{refused, "0", "600", true}},
	"HeadgateKeysShared":      {{`headgate_rule_keys_shared_total{domain="shop", rule="r"}`, "0", "1", true}},
	"HeadgateRuleRefusesAll":  {{admitted, "60", "0", true}, {refused, "0", "60", true}},
	"HeadgateLeasesNotEnded":  {{acquired, "60", "60", true}, {lost, "0", "60", true}},
	"HeadgateCountersEvicted": {{`headgate_memory_evictions_total`, "0", "10", true}},
	"HeadgatePanics":          {{`headgate_panics_total{where="wire"}`, "0", "1", true}},
	"HeadgateLogLost":         {{`headgate_log_lost_lines_total`, "0", "1", true}},
	"HeadgateSlotsFailing": {{slotAsked, "60", "60", true},
		{strings.Replace(slotAsked, "new", "timeout", 1), "0", "60", true}},
	"HeadgateSlotsExhausted": {{slotAsked, "60", "60", true},
		{strings.Replace(slotAsked, "new", "exhausted", 1), "0", "60", true}},
	"HeadgateSlotsLate": {{`headgate_slots_delay_seconds_bucket{config="pay", le="60"}`, "60", "0", true},
		{`headgate_slots_delay_seconds_bucket{config="pay", le="3600"}`, "60", "60", true},
		{`headgate_slots_delay_seconds_bucket{config="pay", le="+Inf"}`, "60", "60", true},
		{`headgate_slots_delay_seconds_count{config="pay"}`, "60", "60", true}},
	"HeadgateSlotsPoolBusy": {{`headgate_slots_pool_busy_connections`, "1", "29", false},
		{`headgate_slots_pool_max_connections`, "30", "30", false}},
	"HeadgateLocalDebt":          {{`headgate_local_pending_keys`, "0", "1", false}},
	"HeadgateSeriesFull":         {{`headgate_decisions_total{rule="(other)", outcome="ok"}`, "0", "60", true}},
	"HeadgateCertificateRefused": {{`headgate_certificate_renewal_refused`, "0", "1", false}},
	"HeadgateCandidateNotLoaded": {{`headgate_candidate_up`, "1", "0", false}},
	"HeadgateCaptureStopped":     {{`headgate_capture_stopped`, "0", "1", false}},
	"HeadgateNeverAsked": {{`headgate_rules`, "0", "3", false},
		{`headgate_request_duration_seconds_count`, "0", "0", true}},
	"HeadgateDomainRemoved": {{`headgate_xds_removed_domains_in_use_total`, "0", "1", true}},
}

// quietMinutes come before the condition, and as many with it.
const quietMinutes = 80

// line returns the series of c, in the form of promtool, for an alert whose condition holds in the minutes
// that holds says.
func (c condition) line(job string, holds func(minute int) bool) string {
	name, labels, _ := strings.Cut(c.series, "{")
	labels = strings.TrimSuffix(labels, "}")
	if labels != "" {
		labels = ", " + labels
	}
	var values []string
	sum := 0
	for minute := range 2 * quietMinutes {
		v := c.off
		if minute >= quietMinutes && holds(minute-quietMinutes) {
			v = c.on
		}
		if c.grows {
			n := 0
			fmt.Sscan(v, &n)
			sum += n
			v = fmt.Sprint(sum)
		}
		values = append(values, v)
	}
	return fmt.Sprintf("  - {series: '%s{namespace=\"n\", job=%q%s}', values: '%s'}\n",
		name, job, labels, strings.Join(values, " "))
}

// TestAlertsDoNotFlap: a condition that holds for two minutes of four starts its alert once at most. One
// that stays starts it.
func TestAlertsDoNotFlap(t *testing.T) {
	promtool := testenv.UseClient(t, testenv.Promtool)
	text, rules := readRules(t)
	var stays, flaps, fires strings.Builder
	seen := map[string]bool{}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if r.Alert == "" || seen[r.Alert] {
				continue
			}
			seen[r.Alert] = true
			if conditions[r.Alert] == nil {
				t.Errorf("%s has no row in conditions", r.Alert)
			}
			for _, c := range conditions[r.Alert] {
				stays.WriteString(c.line(r.Alert, func(int) bool { return true }))
				flaps.WriteString(c.line(r.Alert, func(minute int) bool { return minute%4 < 2 }))
			}
			fmt.Fprintf(&fires, "  - {expr: 'count(count_over_time(ALERTS{alertname=%q, job=%q, alertstate=\"firing\"}[90m])) "+
				"> bool 0', eval_time: %dm, exp_samples: [{labels: '{}', value: 1}]}\n", r.Alert, r.Alert, 2*quietMinutes-1)
		}
	}
	const starts = `count_over_time((ALERTS{alertstate="firing"} unless ALERTS{alertstate="firing"} offset 1m)[3h:1m])`
	once := fmt.Sprintf("  - {expr: '%s > 1', eval_time: %dm, exp_samples: []}\n", starts, 2*quietMinutes-1)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), text)
	write(t, filepath.Join(dir, "flap.yaml"), "rule_files: [rules.yaml]\nevaluation_interval: 1m\n"+
		"group_eval_order: [headgate-objectives, headgate-burn-rates, headgate]\ntests:\n"+
		"- name: stays\n  interval: 1m\n  input_series:\n"+stays.String()+"  promql_expr_test:\n"+fires.String()+once+
		"- name: flaps\n  interval: 1m\n  input_series:\n"+flaps.String()+"  promql_expr_test:\n"+once)
	file := filepath.Join(dir, "flap.yaml")
	if code, out, errOut := testenv.RunProgram(t, promtool, nil, "test", "rules", file); code != 0 {
		t.Errorf("%s%s", out, errOut)
	}
}
