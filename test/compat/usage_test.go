package compat

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Envoy Gateway asks with no hits, and reports the cost after the response: with 21 an hour and
// 10 for each response, the fourth request is refused. The figures are the reference's.
func TestCostsThatAreReportedAfterwards(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"),
		"domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 21}}\n")
	s := start(t, rules(root))
	var got []string
	for range 6 {
		ask := descriptor("a=x")
		ask.HitsAddend = wrapperspb.UInt64(0)
		resp, err := s.call("d", 0, ask)
		if err != nil {
			t.Fatal(err)
		}
		if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
			got = append(got, "429")
		} else {
			got = append(got, "200")
		}
		report := descriptor("a=x")
		report.HitsAddend = wrapperspb.UInt64(10)
		if _, err := s.call("d", 0, report); err != nil {
			t.Fatal(err)
		}
	}
	if want := "200 200 200 429 429 429"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	_, page := s.get("http://" + s.debug + "/metrics")
	for _, want := range []string{"total_hits{domain=\"d\",key1=\"a\"} 60\n", "over_limit{domain=\"d\",key1=\"a\"} 39\n",
		"near_limit{domain=\"d\",key1=\"a\"} 5\n"} {
		if !strings.Contains(page, "ratelimit_service_rate_limit_"+want) {
			t.Errorf("%q is not in:\n%s", want, only(page, "ratelimit_service_rate_limit"))
		}
	}
}
