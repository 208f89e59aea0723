package notify

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestAcceptedMessagesAreSentOnce: configure, send to the limit, be refused, send again in
// the next window; every message that was accepted is sent once.
func TestAcceptedMessagesAreSentOnce(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			s := newStack(t, m).start(1)
			g, sender := s.gateways[0], s.sender()
			g.send("alice", "x").expect(t, 404, nil)
			saved := g.configure(t, "alice", 3, 2)
			saved.expect(t, 200, map[string]any{"userId": "alice", "rateLimit": 3, "timeWindow": 2, "currentCount": 0})
			if got := s.query("SELECT current_count, clock_timestamp() - last_refresh_time < interval '20 s' FROM " +
				"rate_limit_store"); got != "0|t" {
				t.Errorf("the new row has %s", got)
			}
			for i := range 3 {
				g.send("alice", fmt.Sprint("first ", i)).expect(t, 200, map[string]any{"userId": "alice", "status": "QUEUED",
					"limit": 3, "remaining": 2 - i})
			}
			refused := g.send("alice", "too many")
			refused.expect(t, 429, map[string]any{"status": 429, "error": "Too Many Requests"})
			if after, _ := strconv.Atoi(refused.header.Get("Retry-After")); after < 60 || after > 120 {
				t.Errorf("Retry-After is %q", refused.header.Get("Retry-After"))
			}
			testenv.Eventually(t, 5*time.Second, "the count is in the database", func() string {
				if got := s.query("SELECT current_count FROM rate_limit_store"); got != "3" {
					return got
				}
				return ""
			})
			s.elapse("alice", 2*time.Minute)
			g.send("alice", "second").expect(t, 200, map[string]any{"remaining": 2})
			testenv.Eventually(t, 20*time.Second, "all messages are sent", func() string {
				for _, text := range []string{"first 0", "first 1", "first 2", "second"} {
					if n := sent(sender, "alice", text); n != 1 {
						return fmt.Sprintf("%q was sent %d times", text, n)
					}
				}
				return ""
			})
			if n := sent(sender, "alice", "too many"); n != 0 || strings.Count(sender.Log(), "SMS SENT") != 4 {
				t.Errorf("sent: %s", sender.Log())
			}
		})
	}
}

// sent counts the lines of the sender's log about a message.
func sent(sender *program, user, text string) (n int) {
	if strings.Contains(text, " ") {
		text = strconv.Quote(text)
	}
	for line := range strings.Lines(sender.Log()) {
		if strings.Contains(line, `msg="SMS SENT" user=`+user+` message=`+text+" ") {
			n++
		}
	}
	return n
}

// elapse moves the beginning of the user's window into the past, and ends it in Redis as its
// expiry would.
func (s *stack) elapse(user string, by time.Duration) {
	s.t.Helper()
	s.query(fmt.Sprintf("UPDATE rate_limit_store SET last_refresh_time = last_refresh_time - %d * interval '1 second' "+
		"WHERE user_id = '%s'", int(by.Seconds()), user))
	if s.redis != "" {
		if err := s.redisClient().Del(s.t.Context(), "RateLimiterCache:"+user).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestOneUnitLeft: 64 sends at a time over three gateways get one unit once: in every mode,
// while Redis is down, and while one of the gateways does not reach it.
func TestOneUnitLeft(t *testing.T) {
	for _, m := range append(modes, mode{"fall-back", true, false}, mode{"fall-back of one gateway", true, true}) {
		t.Run(m.name, func(t *testing.T) {
			s := newStack(t, m)
			server := s.ownRedis(m)
			s.start(2)
			if m.name == "fall-back of one gateway" {
				s.redis = fmt.Sprintf("redis://127.0.0.1:%d", testenv.FreePort(t))
			}
			s.start(1, "--start-wait", "5s") // for the Redis that it does not reach
			if m.name == "fall-back" {
				server.Kill()
			}
			s.gateways[0].configure(t, "u", 20, 10)
			left := int64(20)
			for i := range 19 {
				a := s.gateways[i%3].send("u", fmt.Sprint(i))
				if a.status == 429 && m.name == "fall-back of one gateway" && i%3 == 2 {
					continue // the others have the rest in Redis
				}
				a.expect(t, 200, nil)
				left--
			}
			var counts [600]atomic.Int64
			together(64, func(i int) { counts[s.gateways[i%3].send("u", fmt.Sprint("last ", i)).status].Add(1) })
			if ok, limited := counts[200].Load(), counts[429].Load(); ok != left || limited != 64-left || left > 3 {
				t.Errorf("of %d units that were left %d were accepted, and %d refused", left, ok, limited)
			}
			if got := s.query("SELECT GREATEST(current_count, reserved_count) FROM rate_limit_store"); got != "20" {
				t.Errorf("%s are taken in the database", got)
			}
			if strings.HasPrefix(m.name, "fall-back") && !strings.Contains(s.gateways[2].Log(), downText) {
				t.Error("the gateway does not say that it falls back")
			}
		})
	}
}

// downText is what the log says when the database decides instead of Redis.
const downText = "REDIS DOWN — Falling back to Postgres"

// TestTheBlockOfARedisThatDiesIsLost: nobody gets what Redis had of the last block.
func TestTheBlockOfARedisThatDiesIsLost(t *testing.T) {
	s := newStack(t, modes[2])
	server := s.ownRedis(modes[2])
	s.start(3)
	s.gateways[0].configure(t, "u", 20, 10)
	for i := range 19 {
		s.gateways[i%3].send("u", fmt.Sprint(i)).expect(t, 200, nil)
	}
	server.Kill()
	together(64, func(i int) { s.gateways[i%3].send("u", fmt.Sprint("last ", i)).expect(t, 429, nil) })
}
