package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const serviceStartLimit = 20 * time.Second

// A service is a running `headgate serve`.
type service struct {
	*testenv.Headgate
	t *testing.T
}

// startService runs headgate on free ports of 127.0.0.1 with further flags,
// which win over the defaults, and waits until it serves. The test's cleanup ends
// it, and prints its log if the test failed.
func startService(t *testing.T, flags ...string) *service {
	t.Helper()
	transport := "unary"
	if strings.Contains(t.Name(), onGRPC) {
		transport = "grpc"
	}
	return &service{testenv.ServeHeadgate(t, program,
		append([]string{"--transport", transport, "--rule-header", "x-headgate-rule"}, flags...)...), t}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// fetch gets a page of the service's own HTTP listeners.
func fetch(t *testing.T, addr, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		t.Fatalf("headgate's %s: %v", path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("headgate's %s: %v", path, err)
	}
	return resp.StatusCode, string(bytes.TrimSpace(data))
}

// Metric adds up the series of a metric whose labels include all of labels,
// each written as name="value".
func (s *service) Metric(name string, labels ...string) float64 {
	s.t.Helper()
	_, body := fetch(s.t, s.Debug, "/metrics")
	sum := 0.0
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.Contains(line, "{") {
			series, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if metric, _, _ := strings.Cut(series, "{"); metric != name {
			continue
		}
		if !containsAll(series, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.t.Fatalf("metric %s has the value %q", name, value)
		}
		sum += v
	}
	return sum
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// result is how a finished command ended.
type result struct {
	code        int
	out, errOut string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout:\n%s\nstderr:\n%s", r.code, r.out, r.errOut)
}

// command runs headgate to its end.
func command(t *testing.T, env []string, args ...string) result {
	t.Helper()
	code, out, errOut := testenv.RunProgram(t, program, env, args...)
	return result{code, out, errOut}
}
