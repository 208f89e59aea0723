package descriptors_test

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

func setOf(t *testing.T, texts ...string) *descriptors.Set {
	t.Helper()
	var sources []rulefile.Source
	for _, text := range texts {
		sources = append(sources, rulefile.Source{Name: "rules", Data: []byte(text)})
	}
	set, problems := rulefile.Load(sources, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	return set
}

// TestCompareNamesWhatChanged: each limit that came, went or has other figures is named with both of them.
func TestCompareNamesWhatChanged(t *testing.T) {
	rules := func(list string) string { return "domain: shop\ndescriptors:\n" + list }
	for _, tc := range []struct{ name, old, now, want string }{
		{"nothing", rules("- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}"),
			rules("- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}} # again"), ""},
		{"a number", rules("- {key: tenant, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 600}}"),
			rules("- {key: tenant, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 6}}"),
			"shop/tenant 600/5m -> 6/5m"},
		{"an algorithm", rules("- {key: a, limits: [{name: n, algorithm: token_bucket, rate: 10/s, burst: 20}]}"),
			rules("- {key: a, limits: [{name: n, algorithm: sliding_log, limit: 10, window: 1s}]}"),
			"shop/a:n token_bucket 10/1s burst 20 -> sliding_log 10/1s"},
		{"a calendar", rules("- {key: a, rate_limit: {unit: month, requests_per_unit: 5, calendar: true}}"),
			rules("- {key: a, rate_limit: {unit: month, requests_per_unit: 5, calendar: true, time_zone: Europe/Berlin}}"),
			"shop/a 5/calendar month -> 5/calendar month Europe/Berlin"},
		{"a rule came, another went", rules("- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}"),
			rules("- {key: b, rate_limit: {unit: hour, requests_per_unit: 2}}"),
			"+ shop/b 2/1h|- shop/a 1/1h!"},
		{"a limit is left out", rules("- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}"), rules("- {key: a}"),
			"shop/a 1/1h -> no limit!"},
		{"and unlimited", rules("- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}"),
			rules("- {key: a, rate_limit: {unlimited: true}}"), "shop/a 1/1h -> unlimited!"},
		{"shadow", rules("- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}"),
			rules("- {key: a, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}"),
			"shop/a 1/1h -> 1/1h shadow"},
		{"keys of their own", rules("- {key: a, max_keys: 5, rate_limit: {unit: hour, requests_per_unit: 9}}"),
			rules("- {key: a, max_keys: 7, reserve: {amount: 3, match: oldest}, " +
				"rate_limit: {unit: hour, requests_per_unit: 9}}"),
			"shop/a 9/1h max_keys 5 -> 9/1h max_keys 7 reserve amount 3 ttl 10m on_lost free match oldest"},
		{"in flight", rules("- {key: a, concurrency: [{threshold: 5, response: {statusCode: 503}}]}"),
			rules("- {key: a, concurrency: [{threshold: 7, response: {statusCode: 503}}]}"),
			"shop/a in flight > 5: status 503 -> in flight > 7: status 503"},
		{"second of two",
			rules("- {key: a, limits: [{algorithm: fixed_window, rate: 1/s}, {algorithm: fixed_window, rate: 9/h}]}"),
			rules("- {key: a, limits: [{algorithm: fixed_window, rate: 1/s}]}"), "- shop/a#1 9/1h!"},
		{"a domain", "domain: old\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1}}]",
			"domain: new\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1}}]",
			"- domain old|+ domain new|+ new/a 1/1h|- old/a 1/1h!"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := setOf(t, tc.now).Compare(setOf(t, tc.old))
			taken := strings.Count(tc.want, "!")
			if got := strings.Join(d.Lines(20), "|"); got != strings.ReplaceAll(tc.want, "!", "") || d.TakenAway() != taken {
				t.Errorf("got %s, %d taken away\nwant %s", got, d.TakenAway(), tc.want)
			}
			if d.Empty() != (tc.want == "") {
				t.Errorf("empty: %v", d.Empty())
			}
		})
	}
	if d := setOf(t, rules("- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}")).Compare(nil); strings.Join(
		d.Lines(20), "|") != "+ domain shop|+ shop/a 1/1h" {
		t.Error(d.Lines(20))
	}
}

// TestDifferencesAreCut at so many lines, with a count of the others.
func TestDifferencesAreCut(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("domain: d\ndescriptors:\n")
	for _, key := range "abcdefghij" {
		rules.WriteString("- {key: " + string(key) + "x, rate_limit: {unit: hour, requests_per_unit: 1}}\n")
	}
	d := setOf(t, rules.String()).Compare(nil)
	if lines := d.Lines(11); len(lines) != 11 || lines[10] != "+ d/jx 1/1h" {
		t.Error(lines)
	}
	if lines := d.Lines(5); len(lines) != 5 || lines[4] != "and 7 more" {
		t.Error(lines)
	}
}
