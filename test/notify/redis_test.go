package notify

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/test/testenv"
)

// redisClient returns a client of the stack's Redis.
func (s *stack) redisClient() *redis.Client {
	s.t.Helper()
	o, err := redis.ParseURL(s.redis)
	if err != nil {
		s.t.Fatal(err)
	}
	c := redis.NewClient(o)
	s.t.Cleanup(func() { c.Close() })
	return c
}

// ownRedis gives the stack another Redis, which the test may end.
func (s *stack) ownRedis(m mode) *testenv.RedisServer {
	s.t.Helper()
	if !m.redis {
		return nil
	}
	server := testenv.StartRedis(s.t)
	s.redis = server.URL()
	return server
}

// TestHashIsRemovedByAChange: what is in Redis after a first send, and that a change
// removes it.
func TestHashIsRemovedByAChange(t *testing.T) {
	s := newStack(t, modes[2]).start(1)
	g, c := s.gateways[0], s.redisClient()
	g.configure(t, "bob", 100, 3)
	if n, err := c.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("configuring writes %d keys to Redis: %v", n, err)
	}
	s.query("UPDATE rate_limit_store SET current_count = 7, last_refresh_time = last_refresh_time - interval '1 minute'")
	g.send("bob", "1").expect(t, 200, map[string]any{"remaining": 92})
	const key = "RateLimiterCache:bob"
	h := c.HGetAll(t.Context(), key).Val()
	if h["rateLimit"] != "100" || h["currentCount"] != "8" {
		t.Errorf("the hash is %v", h)
	}
	if ttl := c.PTTL(t.Context(), key).Val(); ttl < 90*time.Second || ttl > 120*time.Second {
		t.Errorf("the hash expires after %v", ttl)
	}
	g.configure(t, "bob", 1, 3)
	if n := c.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("the hash is there after a change")
	}
	g.send("bob", "2").expect(t, 200, map[string]any{"limit": 1, "remaining": 0})
	g.send("bob", "3").expect(t, 429, nil)
}
