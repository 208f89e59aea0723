package attack

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestOutagesTogetherAdmitOneShare: a Redis that is away and back again and again does not admit a local share
// of on_backend_error: local for each time.
func TestOutagesTogetherAdmitOneShare(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	const rules = `
domain: attack
descriptors:
- {key: few, on_backend_error: local, rate_limit: {unit: year, requests_per_unit: 20}}
`
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	server := testenv.StartRedis(t)
	callers := make([]*caller, 2)
	for i := range callers {
		callers[i] = newCaller(t, testenv.ServeHeadgate(t, program, "--rules", file, "--backend", server.URL(),
			"--replicas", "2", "--backend-timeout", "20ms", "--drain-timeout", "1s"))
	}
	end := time.Now().Add(size(8*time.Second, time.Minute))
	var all sync.WaitGroup
	for i, c := range callers {
		all.Go(func() {
			for ; time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				c.ask("few", "greedy")
			}
			t.Logf("replica %d: %d admitted, %d refused, %d errors", i, c.admitted, c.refused, c.errored)
		})
	}
	times := 0
	for ; time.Now().Before(end); times++ {
		server.Pause()
		time.Sleep(size(600*time.Millisecond, 2*time.Second))
		server.Resume()
		time.Sleep(size(600*time.Millisecond, 2*time.Second))
	}
	all.Wait()
	admitted := callers[0].admitted + callers[1].admitted
	t.Logf("%d outages: %d admitted of 20", times, admitted)
	if admitted < 10 || admitted > 20+2*10 {
		t.Errorf("%d are admitted of 20, want at most a share of 10 of each replica more", admitted)
	}
}
