package notify

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

var schemathesisArgs = flag.String("schemathesis",
	fmt.Sprint("--generation-deterministic --max-examples ", random.Times(5, 20)),
	"how much Schemathesis tries; for more: -schemathesis '--seed 7 --max-examples 500'")

// TestSchemathesis sends the gateway what its OpenAPI document allows, and what it does not, and
// has the answers compared with the document.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	testenv.UseClient(t, testenv.Schemathesis)
	const token = "0123456789abcdef0123456789abcdef"
	s := newStack(t, modes[3]).start(1, "--config-token", token)
	g := s.gateways[0]
	testenv.RunSchemathesis(t, g.url+"/openapi.json", token, *schemathesisArgs)
	if strings.Contains(g.Log(), "level=ERROR") {
		t.Errorf("the gateway logs:\n%s", g.Log())
	}
	// Else the run has shown little.
	for outcome, least := range map[string]int{"queued": 1, "unknown_user": 1, "invalid": 10} {
		if n := g.outcomes(t, outcome); n < least {
			t.Errorf("only %d requests to send were %s", n, outcome)
		}
	}
}

var debugListener = regexp.MustCompile(` debug=(\S+)`)

// metrics returns what the gateway serves at /metrics.
func (p *program) metrics(t testing.TB) string {
	t.Helper()
	resp, err := client.Get("http://" + debugListener.FindStringSubmatch(p.Log())[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %d %v", resp.StatusCode, err)
	}
	return string(data)
}

// outcomes returns how many sends had an outcome.
func (p *program) outcomes(t testing.TB, outcome string) int {
	t.Helper()
	line := regexp.MustCompile(
		fmt.Sprintf(`(?m)^headgate_notify_send_duration_seconds_count\{outcome=%q\} (\d+)`, outcome))
	m := line.FindStringSubmatch(p.metrics(t))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
