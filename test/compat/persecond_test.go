package compat

import (
	"context"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/headgate-rls/headgate/test/testenv"
)

const secondsAndHours = `domain: d
descriptors:
  - {key: sec, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: many, rate_limit: {unit: second, requests_per_unit: 1000000}}
`

// twoRedis is an environment with a second Redis for limits per second.
func twoRedis(t *testing.T, main, second *testenv.RedisServer, more ...string) map[string]string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), secondsAndHours)
	env := map[string]string{"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
		"RUNTIME_IGNOREDOTFILES": "true", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": main.Addr, "USE_STATSD": "false",
		"REDIS_PERSECOND": "true", "REDIS_PERSECOND_SOCKET_TYPE": "tcp", "REDIS_PERSECOND_URL": second.Addr,
		"REDIS_PERSECOND_AUTH": "zwei", "LOG_LEVEL": "info", "HEADGATE_DRAIN_DELAY": "0s"}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// The reference and headgate keep the same counters in the same of two Redis, and so can stand side by side.
func TestLimitsPerSecondInASecondRedis(t *testing.T) {
	t.Parallel()
	reference := testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd")
	main, second := testenv.StartRedis(t), testenv.StartRedis(t, testenv.WithPassword("zwei"))
	keys := map[string]map[string]bool{}
	for name, path := range map[string]string{"the reference": reference, "headgate": program} {
		s := startProgram(t, path, twoRedis(t, main, second, "REDIS_LAYOUT", "envoy"))
		over, err := s.call("d", 3, descriptor("sec=a"), descriptor("hour=a"))
		if err != nil || over.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
			t.Errorf("%s: 3 hits of 2: %v %v", name, over, err)
		}
		if got := s.codes(2, "d", "many=a"); got != "200 200" {
			t.Errorf("%s: %s", name, got)
		}
		keys[name] = map[string]bool{}
		for at, server := range map[string]*testenv.RedisServer{"main": main, "second": second} {
			list, err := server.Client().Keys(t.Context(), "d_*").Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range list {
				keys[name][at+" "+regexp.MustCompile(`_\d+$`).ReplaceAllString(k, "")] = true
			}
			if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(keys["headgate"]) < 3 || !maps.Equal(keys["headgate"], keys["the reference"]) {
		t.Errorf("headgate has the counters %v, the reference %v", keys["headgate"], keys["the reference"])
	}
}

// While the Redis of limits per second fails, its limits fail, others hold, and the log, the metrics and /readyz say
// which Redis it is.
func TestSecondRedisFails(t *testing.T) {
	t.Parallel()
	main, second := testenv.StartRedis(t), testenv.StartRedis(t, testenv.WithPassword("zwei"))
	s := start(t, twoRedis(t, main, second))
	if got := s.codes(3, "d", "many=a"); got != "200 200 200" {
		t.Errorf("with both: %s", got)
	}
	second.Kill()
	if _, err := s.call("d", 1, descriptor("many=a")); err == nil {
		t.Error("without its Redis a limit per second is decided")
	}
	if got := s.codes(3, "d", "hour=a"); got != "200 200 429" {
		t.Errorf("without the second Redis, a limit per hour: %s", got)
	}
	resp, err := s.call("d", 1, descriptor("many=a"), descriptor("hour=a"))
	if err != nil || resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
		t.Errorf("a request of both, of which the limit per hour is spent: %v %v", resp, err)
	}
	s.eventually("it tells of the second Redis", func() bool {
		_, _ = s.call("d", 1, descriptor("many=a"))
		_, page := s.get("http://" + s.debug + "/metrics")
		code, ready := s.get("http://" + s.http + "/readyz")
		errors := regexp.MustCompile(`(?m)^headgate_backend_errors_total\{backend="redis-per-second",.*\} [1-9]`)
		return errors.MatchString(page) && strings.Contains(page, "headgate_breaker_open 1") &&
			code == 503 && strings.Contains(ready, "the store of limits per second") &&
			strings.Contains(s.Log(), "redis-per-second")
	})
	second.Restart()
	s.eventually("limits per second are decided again", func() bool {
		_, err := s.call("d", 1, descriptor("many=a"))
		return err == nil
	})
}

// While the Redis of limits per second is silent, other limits are decided on the same connection without waiting for
// it, but for the calls that were with it when it fell silent.
func TestSecondRedisIsSilent(t *testing.T) {
	t.Parallel()
	main, second := testenv.StartRedis(t), testenv.StartRedis(t, testenv.WithPassword("zwei"))
	s := start(t, twoRedis(t, main, second))
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(s.creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := rls.NewRateLimitServiceClient(conn)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	call := func(key string, each func(took time.Duration)) {
		req := &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{descriptor(key)}}
		callers.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, _ = client.ShouldRateLimit(ctx, req)
				each(time.Since(began))
			}
		})
	}
	var silent atomic.Bool
	var decided, late atomic.Int64
	for range 4 {
		call("many=a", func(time.Duration) {})
	}
	for range 24 {
		call("hour=a", func(took time.Duration) {
			if !silent.Load() {
				return
			}
			decided.Add(1)
			if took > 250*time.Millisecond {
				late.Add(1)
			}
		})
	}
	second.Pause()
	time.Sleep(1200 * time.Millisecond) // twice as long as calls wait for a Redis
	silent.Store(true)
	time.Sleep(4 * time.Second)
	silent.Store(false)
	second.Resume()
	cancel()
	callers.Wait()
	if decided.Load() < 1000 || late.Load() > 0 {
		t.Errorf("%d of %d decisions by the other Redis came late", late.Load(), decided.Load())
	}
}
