//go:build egtest

package egtest

import (
	"strings"
	"testing"
	"time"
)

// Envoy Gateway that starts again sends its rules part by part: no rule is lost while it
// is away, nor while it sends.
func TestEnvoyGatewayStartsAgain(t *testing.T) {
	l := start(t, program, scenarios)
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
