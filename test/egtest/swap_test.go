//go:build egtest

package egtest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// swapped is the case by which both programs are compared.
var swapped = scenario{name: "the swap", host: "swap",
	rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}]\n  " + threePerHour}

// Who swaps the image keeps what clients, dashboards and operators see: headers, metrics, a Redis that fails, and
// policies that change. The reference does the same in the same lab.
func TestSwap(t *testing.T) {
	metrics := map[string]string{}
	for _, c := range []struct {
		name, program string
		waits         bool // for its control plane, maybe for longer than tests do
	}{
		{"the reference", testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd"), true},
		{"headgate", program, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := start(t, c.program, []scenario{swapped}, "PROMETHEUS_MAPPER_YAML=") // the reference then has its own
			l.headers()
			metrics[c.name] = l.hits()
			l.policyChanges()
			l.redisFails()
			if c.waits {
				l.rls.Kill()
			}
		})
	}
	if want := metrics["the reference"]; metrics["headgate"] != want || !strings.Contains(want, "over_limit") {
		t.Errorf("headgate has the metrics\n%s\nthe reference\n%s", metrics["headgate"], want)
	}
}

// one is what a client sends whose limit is 3.
func one(user string) request {
	return request{host: swapped.host, header: map[string]string{"x-user-id": user}}
}

// headers spends the limit of a client and looks at what each answer says.
func (l *lab) headers() {
	l.t.Helper()
	inHour := func(text string) bool {
		n, err := strconv.Atoi(text)
		return err == nil && n >= 1 && n <= 3600
	}
	for i, want := range []answer{{status: 200, remaining: "2"}, {status: 200, remaining: "1"},
		{status: 200, remaining: "0"}, {status: 429, remaining: "0"}} {
		a := l.ask(one("one"))
		if a.status != want.status || a.remaining != want.remaining || a.limit != perHour || !inHour(a.reset) {
			l.t.Errorf("request %d: %+v, want %d, %s remaining and a reset within the hour", i+1, a, want.status,
				want.remaining)
		}
		if a.retryAfter != "" {
			l.t.Errorf("request %d: Retry-After is %q", i+1, a.retryAfter)
		}
	}
}

// hits returns the metrics of the case, without those of the route that is there to wait for.
func (l *lab) hits() string {
	l.t.Helper()
	var list []string
	// The reference counts its metrics every ten seconds.
	testenv.Eventually(l.t, 30*time.Second, "have metrics of the refusal", func() string {
		list = nil
		page := l.page(metricsPort, "/metrics")
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "ratelimit_service_rate_limit_") && strings.Contains(line, "/swap/") &&
				!strings.HasSuffix(line, " 0\n") {
				list = append(list, line)
			}
		}
		if text := strings.Join(list, ""); !strings.Contains(text, "_over_limit{") {
			return "there is " + text
		}
		return ""
	})
	return strings.Join(list, "")
}

// policyChanges gives the route another limit, and takes it away.
func (l *lab) policyChanges() {
	l.t.Helper()
	change := func(rules, limit string) {
		l.t.Helper()
		c := swapped
		c.rules = rules
		l.write(filepath.Join(l.home, "resources", "all.yaml"), l.resources([]scenario{c}))
		testenv.Eventually(l.t, time.Minute, "put the changed policy in force", func() string {
			if a := l.ask(one("changes")); a.limit != limit {
				return fmt.Sprintf("%+v", a)
			}
			return ""
		})
	}
	change(strings.ReplaceAll(swapped.rules, "requests: 3", "requests: 1000"), "1000, 1000;w=3600")
	change(strings.ReplaceAll(swapped.rules, "x-user-id", "x-other"), "") // the client is not limited any more
	change(swapped.rules, perHour)
}

// redisFails takes Redis away: with failClosed no limited request passes, and others do. When Redis is back, limits
// hold again.
func (l *lab) redisFails() {
	l.t.Helper()
	l.redis.Kill()
	for range 20 {
		if a := l.ask(one("in the outage")); a.status != 500 {
			l.t.Errorf("without Redis: %+v, want 500", a)
		}
	}
	if a := l.ask(request{host: swapped.host}); a.status != 200 {
		l.t.Errorf("without Redis, a request without a limit: %+v", a)
	}
	l.redis.Restart()
	testenv.Eventually(l.t, time.Minute, "decide when Redis is back", func() string {
		if a := l.ask(one("afterwards")); a.status == 500 {
			return fmt.Sprintf("%+v", a)
		}
		return ""
	})
	l.ask(one("afterwards"))
	l.ask(one("afterwards"))
	if a := l.ask(one("afterwards")); a.status != 429 {
		l.t.Errorf("after the outage the fourth request: %+v, want 429", a)
	}
}
