//go:build egtest

package egtest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// gateways is how many Gateways have rules, of which the lab gives one an Envoy: each is a domain, and Envoy Gateway
// that starts again sends more of them with each of its first messages.
const gateways = 7

// sixMore returns the others, each with a route and a policy.
func sixMore() string {
	var list []string
	for i := 2; i <= gateways; i++ {
		name := fmt.Sprintf("eg-%d", i)
		list = append(list, fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s, namespace: default}
spec:
  gatewayClassName: eg
  listeners: [{name: http, protocol: HTTP, port: %d}]
`, name, otherPort+i), strings.ReplaceAll(route("of-"+name), "name: eg}", "name: "+name+"}"),
			policy("of-"+name, []string{"of-" + name}, "", "- "+threePerHour))
	}
	return strings.Join(list, "---\n")
}

// Envoy Gateway that starts again sends its rules part by part: no rule is lost while it
// is away, nor while it sends.
func TestEnvoyGatewayStartsAgain(t *testing.T) {
	l := start(t, program, scenarios)
	// Of several Gateways Envoy Gateway gives the first one that it sees an Envoy, so the others come now.
	l.write(filepath.Join(l.home, "resources", "more.yaml"), sixMore())
	testenv.Eventually(t, time.Minute, "send the rules of all Gateways", func() string {
		for i := 2; i <= gateways; i++ {
			if domain := fmt.Sprintf("default/eg-%d/http", i); !strings.Contains(l.rules(), domain) {
				return domain + " is not in:\n" + l.rules()
			}
		}
		return ""
	})
	before := l.rules()
	l.eg.Terminate()
	l.eg.Wait(time.Minute)
	same := func(when string) {
		t.Helper()
		if now := l.rules(); now != before {
			t.Fatalf("%s there are %d lines of rules, want %d:\n%s", when, strings.Count(now, "\n"),
				strings.Count(before, "\n"), now)
		}
	}
	same("while Envoy Gateway is away")
	if !strings.Contains(l.rlconfig(), "# connected: no") {
		t.Errorf("/rlconfig: %s", l.rlconfig())
	}
	l.startGateway()
	connected := 0
	for deadline := time.Now().Add(2 * time.Minute); connected < 600 && time.Now().Before(deadline); time.Sleep(
		20 * time.Millisecond) {
		same("while Envoy Gateway starts")
		if connected > 0 || strings.Contains(l.rlconfig(), "# connected: yes") {
			connected++ // beyond the grace, after which what is not sent goes
		}
	}
	if connected < 600 {
		t.Errorf("no connection:\n%s", l.rlconfig())
	}
}

// rules returns the lines of /rlconfig that are rules.
func (l *lab) rules() string {
	var rules []string
	for line := range strings.Lines(l.rlconfig()) {
		if !strings.HasPrefix(line, "#") {
			rules = append(rules, line)
		}
	}
	return strings.Join(rules, "")
}
