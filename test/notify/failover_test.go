package notify

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestFaultFailOver: the hash of a replica that has become the master is older than what was
// answered. It is not believed: nobody gets a unit twice.
func TestFaultFailOver(t *testing.T) {
	s := newStack(t, modes[2])
	replica := testenv.StartRedis(t)
	s.start(1)
	g, old, young := s.gateways[0], s.redisClient(), replica.Client()
	g.configure(t, "u", 160, 60)
	for range 3 {
		g.send("u", "x").expect(t, 200, nil)
	}
	// What a replica has that is a few commands behind: the same hash, of another server.
	const key = "RateLimiterCache:u"
	copyHash(t, old, young, key)
	for range 5 {
		g.send("u", "x").expect(t, 200, nil)
	}
	before := g.send("u", "x")
	gatewayOn(t, s, replica)
	after := s.gateways[1].send("u", "x")
	if after.status != 200 || after.body["remaining"].(float64) >= before.body["remaining"].(float64) {
		t.Errorf("after the fail-over %v remain, before it %v", after.body, before.body)
	}
}

func copyHash(t *testing.T, from, to *redis.Client, key string) {
	t.Helper()
	ctx := t.Context()
	data, err := from.Dump(ctx, key).Result()
	if err == nil {
		err = to.Restore(ctx, key, time.Hour, data).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// gatewayOn starts a gateway that has another Redis.
func gatewayOn(t *testing.T, s *stack, server *testenv.RedisServer) {
	t.Helper()
	s.redis = server.URL()
	s.gateways = append(s.gateways, s.gateway())
}
