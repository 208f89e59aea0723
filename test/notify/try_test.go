package notify

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestNewcomerCanSendAMessage is what a newcomer does: make notify, and the two requests
// that it prints.
func TestNewcomerCanSendAMessage(t *testing.T) {
	t.Parallel() // it waits for servers most of the time
	testenv.Require(t, testenv.Kafka)
	testenv.Require(t, testenv.Postgres)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	p := testenv.StartProgram(t, tryProgram, nil, "-http", address, "-root", root)
	testenv.Eventually(t, 2*time.Minute, "make notify says what to try", func() string {
		if p.Exited() {
			t.Fatalf("it has ended:\n%s", p.Log())
		}
		if !strings.Contains(p.Log(), "Ctrl-C ends everything") {
			return "it says: " + p.Log()
		}
		return ""
	})
	g := &program{url: "http://" + address}
	bodies := map[string]string{}
	for line := range strings.Lines(p.Log()) {
		if _, rest, ok := strings.Cut(line, " -d '"); ok {
			body, url, _ := strings.Cut(rest, "' http://"+address)
			bodies[strings.TrimSpace(url)] = body
		}
	}
	g.post("/api/config", bodies["/api/config"]).expect(t, 200, map[string]any{"userId": "alice", "rateLimit": 3})
	for range 3 {
		g.post("/api/send", bodies["/api/send"]).expect(t, 200, nil)
	}
	g.post("/api/send", bodies["/api/send"]).expect(t, 429, nil)
	testenv.Eventually(t, 20*time.Second, "the sender's lines are shown", func() string {
		if n := strings.Count(p.Log(), "SMS SENT"); n != 3 {
			return fmt.Sprintf("%d lines", n)
		}
		return ""
	})
	p.Terminate()
	if code := p.Wait(30 * time.Second); code != 0 {
		t.Errorf("it ends with %d:\n%s", code, p.Log())
	}
}
