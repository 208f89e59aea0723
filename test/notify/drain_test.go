package notify

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestTheEndCostsNoRequest: a gateway that is asked to end says that it is not ready, answers what
// comes meanwhile, and has written what it counted before it is gone.
func TestTheEndCostsNoRequest(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newStack(t, modes[2]).start(1, "--drain-delay", "8s", "--sync-delay", "1m")
	g := s.gateways[0]
	resp, err := client.Get(g.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || err != nil || string(body) != "OK\n" {
		t.Errorf("/healthz says %d %q, %v", resp.StatusCode, body, err)
	}
	g.configure(t, "u", 10_000, 60)
	var accepted atomic.Int64
	var ending, over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !over.Load(); i++ {
			if a := g.send("u", fmt.Sprint(i)); a.status == 200 {
				accepted.Add(1)
			} else if !ending.Load() {
				t.Errorf("a send is answered with %d %v", a.status, a.body)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	g.Terminate()
	testenv.Eventually(t, 10*time.Second, "the gateway says that it drains", func() string {
		if got := g.ready(t); !strings.HasPrefix(got, "503") || !strings.Contains(got, "draining") {
			return got
		}
		return ""
	})
	before := accepted.Load()
	testenv.Eventually(t, 10*time.Second, "sends are accepted meanwhile", func() string {
		if n := accepted.Load() - before; n < 5 {
			return fmt.Sprint(n)
		}
		return ""
	})
	ending.Store(true)
	if code := g.Wait(30 * time.Second); code != 0 || !strings.Contains(g.Log(), "msg=drained") {
		t.Errorf("the gateway ends with %d:\n%s", code, g.Log())
	}
	over.Store(true)
	<-done
	if got, want := s.query("SELECT current_count FROM rate_limit_store"), fmt.Sprint(accepted.Load()); got != want {
		t.Errorf("%s are counted in the database, want the %s that were accepted", got, want)
	}
}
