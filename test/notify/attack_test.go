package notify

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestChangesDuringSends: while limits change, of each configuration no more is accepted than it
// allows, nobody gets an error, and the last one is in force.
func TestChangesDuringSends(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			if m.outbox {
				longForm(t)
			}
			s := newStack(t, m).start(2)
			limits := []int{31, 7, 52, 23, 44, 15} // each once: an answer says by which it was accepted
			s.gateways[0].configure(t, "u", limits[0], 60)
			var mu sync.Mutex
			accepted := map[int]int{}
			stop := make(chan struct{})
			var senders sync.WaitGroup
			for i := range 8 {
				senders.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						a := s.gateways[(i+n)%2].send("u", fmt.Sprint(i, "/", n))
						mu.Lock()
						limit, _ := a.body["limit"].(float64)
						switch a.status {
						case 200:
							accepted[int(limit)]++
						case 429:
						default:
							t.Errorf("a send is answered with %d %v", a.status, a.body)
						}
						mu.Unlock()
					}
				})
			}
			of := func(limit int) int {
				mu.Lock()
				defer mu.Unlock()
				return accepted[limit]
			}
			for i, limit := range limits {
				if i > 0 {
					s.gateways[i%2].configure(t, "u", limit, 60)
				}
				// Half of it: a block may be lost with the hash that the change removes.
				testenv.Eventually(t, 20*time.Second, "messages are accepted by the new limit", func() string {
					if n := of(limit); n < limit/2 {
						return fmt.Sprintf("%d of %d", n, limit)
					}
					return ""
				})
			}
			testenv.Eventually(t, 20*time.Second, "the last limit is used up", func() string {
				return different(s.query("SELECT GREATEST(current_count, reserved_count) FROM rate_limit_store"),
					fmt.Sprint(limits[len(limits)-1]))
			})
			close(stop)
			senders.Wait()
			for limit, n := range accepted {
				if n > limit {
					t.Errorf("%d messages were accepted by a limit of %d", n, limit)
				}
			}
		})
	}
}

func different(got, want string) string {
	if got != want {
		return "it is " + got + ", want " + want
	}
	return ""
}

// TestClientsThatLeave: if a client hangs up in the middle of a send, the message may have been sent.
// What is in the topic is counted, and the gateway goes on.
func TestClientsThatLeave(t *testing.T) {
	for _, m := range []mode{modes[0], modes[3]} {
		t.Run(m.name, func(t *testing.T) {
			s := newStack(t, m).start(1)
			g := s.gateways[0]
			g.configure(t, "u", 1000, 60)
			together(64, func(i int) {
				conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				body := encode(map[string]string{"userId": "u", "message": fmt.Sprint(i)})
				fmt.Fprintf(conn, "POST /api/send HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: "+
					"%d\r\n\r\n%s", len(body), body[:len(body)-i%2])
				time.Sleep(time.Duration(i%8) * time.Millisecond)
			})
			g.send("u", "last").expect(t, 200, map[string]any{"limit": 1000})
			records := map[string]int{}
			for _, r := range s.consumed(map[string]bool{"last": true}, 20*time.Second) {
				records[r.Text]++
			}
			testenv.Eventually(t, 10*time.Second, "what is in the topic is counted, and nothing else", func() string {
				return different(s.query("SELECT current_count FROM rate_limit_store"), fmt.Sprint(len(records)))
			})
			for text, n := range records {
				if n != 1 {
					t.Errorf("the message %s is in the topic %d times", text, n)
				}
			}
		})
	}
}

// TestStrangeUsers: each is a user of its own, and one that is too large is refused without a trace.
func TestStrangeUsers(t *testing.T) {
	s := newStack(t, modes[3]).start(1)
	g, sender := s.gateways[0], s.sender()
	for i, user := range []string{
		"Ä用户😀", "A\u0308用户😀", " u ", "u", "U", "{u}", "'; DROP TABLE rate_limit_store; --", "%s\\", "\u202eu",
		strings.Repeat("😀", 255),
	} {
		g.configure(t, user, 1, 60)
		text := fmt.Sprintf("message %d", i)
		g.send(user, text).expect(t, 200, map[string]any{"userId": user, "remaining": 0})
		g.send(user, text).expect(t, 429, nil)
		testenv.Eventually(t, 20*time.Second, "the message is sent", func() string {
			if !strings.Contains(sender.Log(), fmt.Sprintf("message=%q", text)) {
				return "it is not"
			}
			return ""
		})
	}
	// The answer may be lost, as the gateway does not read to the end.
	if a := g.send(strings.Repeat("x", 10<<20), "x"); a.status != 413 && a.status != 0 {
		t.Errorf("a user of 10 MB is answered with %d %v", a.status, a.body)
	}
	if log := g.Log(); len(log) > 100<<10 || strings.Contains(log, "level=ERROR") {
		t.Errorf("the gateway has logged %d bytes:\n%s", len(log), log[:min(len(log), 1000)])
	}
}
