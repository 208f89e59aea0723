package attack

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestHurriedCallDecidesForItself: with a Redis that takes 20 ms, a call that
// waits for 3 ms is answered by policy, and the nine that come with it on the
// same connection are counted. Many of them do not open the breaker, either.
func TestHurriedCallDecidesForItself(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("builds and runs headgate")
	}
	proxy := testenv.StartProxy(t, testenv.StartRedis(t).Addr)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &target{t: t, hg: testenv.ServeHeadgate(t, program, "--rules", file, "--backend", "redis://"+proxy.Addr,
		"--backend-timeout", "10s")}
	defer g.closeAll()
	var byPolicy, counted atomic.Int64
	w := g.connect()
	w.onData = func(message []byte) {
		if bytes.Contains(message, []byte("degraded")) || bytes.Contains(message, []byte("overloaded")) {
			byPolicy.Add(1)
		} else {
			counted.Add(1)
		}
	}
	body := prefixed(0, request("free", "a", 0))
	ask := func(timeout string) { w.call(body, append(headers(methodDecide)[:12], "grpc-timeout", timeout)...) }
	ask("10S") // connects to Redis
	w.flush()
	waitUntil(20*time.Second, func() bool { return w.answered.Load() == 1 })
	proxy.SetLatency(20 * time.Millisecond)
	const rounds = 20
	for i := range int64(rounds) {
		for j := range 10 {
			if j == 4 {
				ask("3m")
			} else {
				ask("10S")
			}
		}
		w.flush()
		if !waitUntil(20*time.Second, func() bool { return w.answered.Load() == 1+10*(i+1) }) {
			t.Fatalf("round %d: %d answers", i, w.answered.Load())
		}
	}
	if n := counted.Load(); n < 1+9*rounds {
		t.Errorf("%d calls were answered by count and %d by policy, want %d of %d by count", n, byPolicy.Load(),
			1+9*rounds, 1+10*rounds)
	}
	t.Logf("%d by count, %d by policy", counted.Load(), byPolicy.Load())
}
