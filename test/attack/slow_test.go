package attack

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestSlowRedisIsSeen: a Redis that answers, but later than callers wait, is slow in /readyz and a metric, and the log
// has one line for it, and one when it has recovered.
func TestSlowRedisIsSeen(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for half a minute")
	}
	t.Parallel()
	proxy := testenv.StartProxy(t, testenv.StartRedis(t).Addr)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(troubleRules), 0o600); err != nil {
		t.Fatal(err)
	}
	hg := testenv.ServeHeadgate(t, program, "--rules", file, "--backend", "redis://"+proxy.Addr, "--drain-timeout", "1s")
	c := newCaller(t, hg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		every(ctx, 20*time.Millisecond, func(int) { c.ask("free", "a") })
	}()
	want := func(slow float64, text string) {
		t.Helper()
		testenv.Eventually(t, 40*time.Second, "have headgate see how slow Redis is", func() string {
			v, err := hg.Metrics("headgate_backend_slow")
			if err != nil || v[0] != slow {
				return "headgate_backend_slow is not yet right"
			}
			return ""
		})
		if ready := verbose(t, hg); !strings.Contains(ready, text) || !strings.HasPrefix(ready, "ready\n") {
			t.Errorf("/readyz?verbose: %s", ready)
		}
	}
	time.Sleep(time.Second)
	proxy.SetLatency(300 * time.Millisecond)
	want(1, "backend redis: slow: answers in ")
	t.Logf("%s", verbose(t, hg))
	time.Sleep(size(5*time.Second, time.Minute))
	proxy.SetLatency(0)
	want(0, "backend redis: ok")
	cancel()
	<-ended
	lines := regexp.MustCompile(`(?m)^.*(?:breaker|backend).*$`).FindAllString(hg.Log(), -1)
	t.Logf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	counts := map[string]int{}
	for _, line := range lines {
		for _, word := range []string{"slower than callers wait", "in time again", "breaker opened", "does not answer"} {
			if strings.Contains(line, word) {
				counts[word]++
			}
		}
	}
	if counts["slower than callers wait"] != 1 || counts["in time again"] != 1 || counts["breaker opened"] > 1 ||
		counts["does not answer"] > 0 {
		t.Errorf("lines in the log: %v", counts)
	}
}

func verbose(t *testing.T, hg *testenv.Headgate) string {
	t.Helper()
	resp, err := http.Get("http://" + hg.HTTP + "/readyz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
