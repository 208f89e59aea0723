package compat

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// withRedis is an environment of the reference with counters in Redis.
func withRedis(t *testing.T, server *testenv.RedisServer, rules string) map[string]string {
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), rules)
	return map[string]string{
		"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
		"RUNTIME_IGNOREDOTFILES": "true", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": server.Addr, "REDIS_TIMEOUT": "1s",
		"USE_STATSD": "false", "LOG_LEVEL": "warn", "HEADGATE_DRAIN_DELAY": "0s",
	}
}

// opens reports whether somebody listens on a port.
func opens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// TestStartWithoutRedis: as with the reference, the gRPC port opens when Redis is there. Health says why it is not,
// and the program goes on trying.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	env := ports(t, withRedis(t, server, limited("d", 2)))
	server.Kill()
	s := at(t, env)
	s.Program = testenv.StartProgram(t, program, list(env))
	s.eventually("it says why it is not ready", func() bool {
		code, body := s.get("http://" + s.http + "/readyz?verbose")
		return code == 503 && strings.Contains(body, "backend redis: ")
	})
	if code, _ := s.get("http://" + s.http + "/healthcheck"); code == 200 {
		t.Error("/healthcheck says OK without Redis")
	}
	time.Sleep(1500 * time.Millisecond)
	if opens(s.grpc) || !strings.Contains(s.Log(), "the gRPC port opens when the backend answers") {
		t.Errorf("without Redis the gRPC port is open: %v\n%s", opens(s.grpc), s.Log())
	}
	server.Restart()
	s.ready()
	if got := s.codes(3, "d", "a=b"); got != "200 200 429" {
		t.Errorf("with Redis: %s", got)
	}
	s.Terminate()
	if code := s.Wait(startWithin); code != 0 {
		t.Errorf("it ended on SIGTERM with %d", code)
	}
}

// TestStartWithoutRedisEnds: while it waits for Redis, a signal ends it.
func TestStartWithoutRedisEnds(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	env := ports(t, withRedis(t, server, limited("d", 2)))
	server.Kill()
	s := at(t, env)
	s.Program = testenv.StartProgram(t, program, list(env))
	s.eventually("it waits", func() bool { code, _ := s.get("http://" + s.http + "/readyz"); return code == 503 })
	s.Terminate()
	if code := s.Wait(startWithin); code != 0 {
		t.Errorf("it ended on SIGTERM with %d:\n%s", code, s.Log())
	}
}

// fails asks until calls fail, or succeed.
func (s *service) fails(want bool) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("calls fail: %v", want), func() bool {
		_, err := s.call("d", 1, descriptor("a=b"))
		return (err != nil) == want
	})
}

// TestCallsFailWithoutRedis: with the same environment the reference's calls fail, too, so that Envoy's
// failure_mode_deny decides. HEADGATE_ON_BACKEND_ERROR changes that.
func TestCallsFailWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func(*testing.T) string{
		"headgate": func(*testing.T) string { return program },
		"the reference": func(t *testing.T) string {
			return testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd")
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := path(t)
			server := testenv.StartRedis(t)
			env := withRedis(t, server, limited("d", 1_000_000))
			s := startProgram(t, path, env)
			if _, err := s.call("d", 1, descriptor("a=b")); err != nil {
				t.Fatal(err)
			}
			env["HEADGATE_ON_BACKEND_ERROR"] = "deny"
			denying := start(t, env)
			server.Kill()
			s.fails(true)
			if _, err := s.call("d", 1, descriptor("a=b")); path == program && status.Code(err) != codes.Unavailable {
				t.Errorf("it fails with %v", err)
			}
			if got := denying.codes(1, "d", "a=b"); got != "429" {
				t.Errorf("with HEADGATE_ON_BACKEND_ERROR=deny: %s", got)
			}
			server.Restart()
			s.fails(false)
		})
	}
}

// TestDecidesAsTheReference: an unchanged deployment decides the same: refused requests count, hits of one to four
// and questions without hits are answered alike.
func TestDecidesAsTheReference(t *testing.T) {
	t.Parallel()
	reference := testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd")
	server := testenv.StartRedis(t)
	env := withRedis(t, server, `domain: d
descriptors:
  - {key: few, rate_limit: {unit: year, requests_per_unit: 7}}
  - {key: some, rate_limit: {unit: year, requests_per_unit: 20}}
  - {key: many, rate_limit: {unit: year, requests_per_unit: 50}}
`)
	var both []*client
	for name, s := range map[string]*service{"the reference": startProgram(t, reference, env), "headgate": start(t, env)} {
		conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(s.creds))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		both = append(both, &client{rls.NewRateLimitServiceClient(conn), name, s})
	}
	r := random.Rand(t, 1)
	keys := []string{"few", "some", "many"}
	for i := range random.Times(400, 5000) {
		req := &rls.RateLimitRequest{Domain: "d", HitsAddend: uint32(r.IntN(5))} // 0 is one, as Envoy asks
		for _, k := range r.Perm(3)[:1+r.IntN(2)] {
			d := descriptor(fmt.Sprintf("%s=%d", keys[k], i/20))
			if r.IntN(5) == 0 {
				d.HitsAddend = wrapperspb.UInt64(uint64(r.IntN(3)))
			}
			req.Descriptors = append(req.Descriptors, d)
		}
		var answers []string
		for _, c := range both {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			resp, err := c.ShouldRateLimit(ctx, req)
			cancel()
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			answer := resp.OverallCode.String()
			for _, s := range resp.Statuses {
				answer += fmt.Sprintf(" %v %d", s.Code, s.LimitRemaining)
			}
			answers = append(answers, answer)
		}
		if answers[0] != answers[1] {
			t.Fatalf("request %d, %v:\n%s: %s\n%s: %s", i, req, both[0].name, answers[0], both[1].name, answers[1])
		}
	}
}

// A caller without a deadline waits for a Redis that is slow as long as REDIS_TIMEOUT says.
func TestCallersWithoutADeadline(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	env := withRedis(t, server, limited("d", 1_000_000))
	env["REDIS_TIMEOUT"] = "10s"
	s := start(t, env)
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(s.creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func() error {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), inDomain("d", "a=b"))
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	time.AfterFunc(1500*time.Millisecond, server.Resume)
	began := time.Now()
	if err := ask(); err != nil || time.Since(began) < time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
