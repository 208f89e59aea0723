//go:build egtest

package egtest

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// One pod of headgate beside one of the reference, behind one Service: Envoy asks both, and together they admit what
// the limit allows. docs/migrate.md has the Deployment that does this in a cluster.
func TestCanaryBesideTheReference(t *testing.T) {
	c := scenario{name: "a canary", host: "canary",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}]\n  limit: {requests: 100, unit: Hour}"}
	l := &lab{t: t, canary: true}
	l.start(testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd"), []scenario{c},
		"REDIS_LAYOUT=envoy", "PROMETHEUS_MAPPER_YAML=")
	ask := request{host: c.host, header: map[string]string{"x-user-id": "one"}}
	answers := map[int]int{}
	for range 140 {
		answers[l.ask(ask).status]++
	}
	if answers[200] != 100 || answers[429] != 40 {
		t.Errorf("of 140 requests with a limit of 100: %v", answers)
	}
	testenv.Eventually(t, 30*time.Second, "count what each was asked", func() string {
		first, second := l.asked(metricsPort), l.asked(metricsPort+canaryPorts)
		if first < 20 || second < 20 || first+second != 140 {
			return "the reference " + strconv.Itoa(first) + ", headgate " + strconv.Itoa(second)
		}
		return ""
	})
	l.rls.Kill() // see TestSwap
}

var totalHits = regexp.MustCompile(`(?m)^ratelimit_service_rate_limit_total_hits\{[^}]*/canary/[^}]*\} (\d+)$`)

// asked returns how many hits a rate limit service has counted of the case.
func (l *lab) asked(port int) (n int) {
	for _, m := range totalHits.FindAllStringSubmatch(l.page(port, "/metrics"), -1) {
		hits, _ := strconv.Atoi(m[1])
		n += hits
	}
	return n
}
