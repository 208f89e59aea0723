package attack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

func writeRules(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCutConnectionsOpenNoLimit: while the connections to a Redis over TLS are cut again and again, a client that has
// used up its limit is refused, and afterwards headgate counts again.
func TestCutConnectionsOpenNoLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	certs := testenv.TestCerts(t)
	server := testenv.StartRedis(t, testenv.WithTLS(certs))
	proxy := testenv.StartProxy(t, server.Addr)
	url := "rediss://" + proxy.Addr + "?ca=" + certs.CAFile
	hg := testenv.ServeHeadgate(t, program, "--rules", writeRules(t, troubleRules), "--backend", url,
		"--on-backend-error", "allow", "--drain-timeout", "1s")
	greedy := newCaller(t, hg)
	for range 4 {
		greedy.ask("few", "greedy")
	}
	if greedy.refused != 1 || greedy.uncounted > 0 {
		t.Fatalf("before: %+v", *greedy)
	}
	*greedy = caller{client: greedy.client}
	ctx, cancel := context.WithTimeout(t.Context(), size(3*time.Second, 30*time.Second))
	defer cancel()
	var all sync.WaitGroup
	cuts := 0
	all.Go(func() { every(ctx, 50*time.Millisecond, func(n int) { proxy.Cut(); cuts = n + 1 }) })
	all.Go(func() { every(ctx, 10*time.Millisecond, func(int) { greedy.ask("few", "greedy") }) })
	all.Wait()
	t.Logf("%d cuts: client without units left: %d of %d calls admitted, %d errors", cuts, greedy.admitted,
		greedy.admitted+greedy.refused, greedy.errored)
	if greedy.admitted > 0 || greedy.refused == 0 || cuts < 20 {
		t.Errorf("the client without units left: %+v; %d cuts", *greedy, cuts)
	}
	testenv.Eventually(t, 10*time.Second, "have headgate count again", func() string {
		other := newCaller(t, hg)
		other.ask("few", fmt.Sprint("new", time.Now()))
		if other.uncounted > 0 || other.admitted != 1 {
			return "a policy answers"
		}
		return ""
	})
}

// edgeRules have limits whose windows end all the time.
const edgeRules = `
domain: attack
descriptors:
- {key: fixed, rate_limit: {unit: second, requests_per_unit: 50}}
- {key: sliding, limits: [{algorithm: sliding_window, limit: 50, window: 1s}]}
- {key: log, limits: [{algorithm: sliding_log, limit: 50, window: 1s}]}
- {key: bucket, limits: [{algorithm: token_bucket, rate: 50/s, burst: 50}]}
`

// TestWindowEdgesUnderLoad: two replicas under load admit no more than the limit in the windows of a second, where
// these end, too.
func TestWindowEdgesUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	server := testenv.StartRedis(t)
	replicas := make([]*testenv.Headgate, 2)
	for i := range replicas {
		replicas[i] = testenv.ServeHeadgate(t, program, "--rules", writeRules(t, edgeRules), "--backend", server.URL(),
			"--on-backend-error", "deny", "--backend-timeout", "2s", "--drain-timeout", "1s")
	}
	for _, key := range []string{"fixed", "sliding", "log", "bucket"} {
		t.Run(key, func(t *testing.T) {
			length := size(3*time.Second, 10*time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()
			began := time.Now()
			admitted, refused := make([]int, 4), make([]int, 4)
			var all sync.WaitGroup
			for i := range admitted {
				c := newCaller(t, replicas[i%2])
				all.Go(func() {
					every(ctx, time.Millisecond, func(int) { c.ask(key, "one") })
					admitted[i], refused[i] = c.admitted, c.refused
				})
			}
			all.Wait()
			seconds := time.Since(began).Seconds()
			sum, over := 0, 0
			for i := range admitted {
				sum, over = sum+admitted[i], over+refused[i]
			}
			t.Logf("%d of %d calls admitted in %.2f s, 50 each second", sum, sum+over, seconds)
			if float64(sum) > 50*(seconds+2) || sum < 50 || over == 0 {
				t.Errorf("%d calls are admitted in %.2f s", sum, seconds)
			}
		})
	}
}

// TestChangesEndWhatARefusalTaught: a client that was refused again and again, which headgate knows without asking the
// store, is admitted after a reset and by a larger limit, and refused by a smaller one.
func TestChangesEndWhatARefusalTaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	file := writeRules(t, troubleRules)
	const token = "0123456789abcdef0123456789abcdef"
	hg := testenv.ServeHeadgate(t, program, "--rules", file, "--backend", testenv.StartRedis(t).URL(), "--admin-token",
		token, "--drain-timeout", "1s")
	c := newCaller(t, hg)
	use := func(want int, when string) {
		t.Helper()
		*c = caller{client: c.client}
		for range 40 {
			c.ask("few", "greedy")
		}
		if c.admitted != want || c.refused != 40-want {
			t.Errorf("%s: %+v, want %d admitted", when, *c, want)
		}
	}
	use(3, "at first")
	use(0, "when the limit is used up")
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+hg.HTTP+"/admin/reset/attack%7Cfew=greedy", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("reset: %v %v", resp, err)
	}
	_ = resp.Body.Close()
	use(3, "after a reset")
	limit := func(n string) {
		t.Helper()
		text := strings.Replace(troubleRules, "requests_per_unit: 3}", "requests_per_unit: "+n+"}", 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, 10*time.Second, "have the limit in force", func() string {
			v, err := hg.Metrics(`headgate_limit{algorithm="fixed_window",domain="attack",limit="1",rule="few"}`)
			if err != nil || fmt.Sprint(v[0]) != n {
				return fmt.Sprint(v, err)
			}
			return ""
		})
	}
	limit("13")
	use(10, "under a larger limit")
	limit("2")
	use(0, "under a smaller limit")
	limit("14")
	use(1, "under one that has room for one more")
}
