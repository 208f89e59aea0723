package compat

import (
	"fmt"
	"path/filepath"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A request's own limit takes the place of the rule's, with its counter and its shadow mode.
func TestOwnLimitsShareCounterAndShadowMode(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t)
	for _, more := range [][]string{{"BACKEND_TYPE", "memory"}, {"BACKEND_TYPE", "redis", "REDIS_SOCKET_TYPE", "tcp",
		"REDIS_URL", redis.Addr}} {
		root := t.TempDir()
		write(t, filepath.Join(root, "ratelimit/config/a.yaml"), `domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: s, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: log, limits: [{algorithm: sliding_log, limit: 10, window: 24h}]}
`)
		s := start(t, rules(root, more...))
		ask := func(key string, n uint32, unit envoytype.RateLimitUnit) string {
			t.Helper()
			d := descriptor(key + "=x")
			if n > 0 {
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
			}
			resp, err := s.call("d", 1, d)
			if err != nil {
				t.Fatal(err)
			}
			if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
				return "429"
			}
			return fmt.Sprint(resp.Statuses[0].LimitRemaining)
		}
		const day, hour = envoytype.RateLimitUnit_DAY, envoytype.RateLimitUnit_HOUR
		for i, c := range []struct {
			key  string
			n    uint32
			unit envoytype.RateLimitUnit
			want string
		}{
			{"a", 0, 0, "9"}, {"a", 0, 0, "8"},
			{"a", 4, day, "1"}, // two of the rule's and this one
			{"a", 4, day, "0"}, {"a", 4, day, "429"},
			// the rule counts the two of the override
			{"a", 0, 0, "5"},
			{"a", 4, hour, "3"},                                                              // another window counts for itself
			{"s", 1, day, "0"}, {"s", 1, day, "0"}, {"s", 1, hour, "0"}, {"s", 1, hour, "0"}, // shadow mode refuses nothing
			{"log", 2, day, "1"}, {"log", 0, 0, "9"}, // another algorithm cannot share its state
		} {
			if got := ask(c.key, c.n, c.unit); got != c.want {
				t.Errorf("%s, step %d, %s limit %d: %s, want %s", more[1], i, c.key, c.n, got, c.want)
			}
		}
	}
}
