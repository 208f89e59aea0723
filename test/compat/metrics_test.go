package compat

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// Hits are counted under the reference's names and labels, with its arithmetic; the expected
// figures are those of envoyproxy/ratelimit for the same requests.
func TestMetricsOfTheReference(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), `domain: default/eg/http
descriptors:
  - {key: ten, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: shadow, value: "*", shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: masked_remote_address
    value: 192.0.2.0/24
    descriptors: [{key: b, descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 1}}]}]
  - {key: detail, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
`)
	s := start(t, rules(root))
	ask := func(hits uint32, d *common.RateLimitDescriptor) {
		t.Helper()
		if _, err := s.call("default/eg/http", hits, d); err != nil {
			t.Fatal(err)
		}
	}
	ask(7, descriptor("ten=x")) // 7 of 10: near begins at 8
	ask(2, descriptor("ten=x")) // 9: one of the two is near
	ask(3, descriptor("ten=x")) // 12: one is near, two are over
	for range 3 {
		ask(1, descriptor("shadow=y"))
	}
	ask(5, descriptor("free=z"))
	ask(1, descriptor("masked_remote_address=192.0.2.0/24", "b=1", "c=2"))
	ask(2, descriptor("detail=v:1"))
	ask(1, descriptor("nobody=1"))

	want := func(page, labels string, figures ...int) {
		t.Helper()
		for i, name := range []string{"total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"} {
			line := fmt.Sprintf("ratelimit_service_rate_limit_%s{%s} %d\n", name, labels, figures[i])
			if !strings.Contains(page, line) {
				t.Errorf("%q is not in:\n%s", line, only(page, "ratelimit_service_rate_limit_"+name))
			}
		}
	}
	_, page := s.get("http://" + s.debug + "/metrics")
	const domain = `domain="default/eg/http",key1=`
	want(page, domain+`"ten"`, 12, 2, 2, 9, 0)
	want(page, domain+`"shadow_*"`, 3, 2, 1, 1, 2)
	want(page, domain+`"masked_remote_address_192_0_2_0/24",key2="b"`, 1, 0, 1, 1, 0)
	want(page, domain+`"detail_v_1"`, 2, 1, 1, 0, 0)
	for _, line := range []string{
		"ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 10\n",
		"ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"} 10\n",
		"ratelimit_service_config_load_success 1\n", "ratelimit_service_config_load_error 0\n",
		"ratelimit_service_global_shadow_mode 0\n",
		"ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"} 0\n",
	} {
		if !strings.Contains(page, line) {
			t.Errorf("%q is not in:\n%s", line, only(page, "ratelimit_"))
		}
	}
	if strings.Contains(page, `key1="free"`) || strings.Contains(page, `key1="nobody"`) {
		t.Error("what is not limited has series")
	}
	// Prometheus asks for OpenMetrics first, in which counters would have other names.
	req, _ := http.NewRequest("GET", "http://"+s.debug+"/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") ||
		strings.Contains(string(text), "total_hits_total") {
		t.Errorf("a scraper that takes OpenMetrics gets %s", resp.Header.Get("Content-Type"))
	}

	// A rule that goes takes its series along, and the others go on.
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"),
		"domain: default/eg/http\ndescriptors: [{key: ten, rate_limit: {unit: day, requests_per_unit: 10}}]\n")
	s.eventually("the series of the rule is gone", func() bool {
		_, page = s.get("http://" + s.debug + "/metrics")
		return strings.Contains(page, "config_load_success 2") && !strings.Contains(page, `key1="shadow_*"`)
	})
	want(page, domain+`"ten"`, 12, 2, 2, 9, 0)
}
