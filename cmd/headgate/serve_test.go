package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/headgate-rls/headgate/internal/testenv"
)

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A running is `headgate serve` inside the test, on ports of its own.
type running struct {
	*testing.T
	log               *syncBuffer
	grpc, http, debug string
	services          string // where health watches and reflection are
	metrics           string // if they have a listener of their own
	admin             string // if it has a listener of its own
	stop              func() // as SIGTERM does
	code              chan int
}

var servingLine = regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+) debug=(\S+)(?: metrics=(\S+))?(?: admin=(\S+))?(?: services=(\S+))?`)

func startServe(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{T: t, log: new(syncBuffer), stop: cancel, code: make(chan int, 1)}
	args = append([]string{"serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--debug", "127.0.0.1:0", "--services", "127.0.0.1:0", "--drain-delay", "0s"}, args...)
	if !slices.Contains(args, "--rules") {
		args = append(args, "--example")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.code <- run(ctx, args, strings.NewReader(""), io.Discard, r.log)
	}()
	t.Cleanup(func() { cancel(); <-done })
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if m := servingLine.FindStringSubmatch(r.log.String()); m != nil {
			r.grpc, r.http, r.debug, r.metrics, r.admin, r.services = m[1], m[2], m[3], m[4], m[5], m[6]
			if r.services == "" {
				r.services = r.grpc
			}
			return r
		}
		select {
		case code := <-r.code:
			t.Fatalf("serve ended with code %d:\n%s", code, r.log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("serve does not start:\n%s", r.log)
		}
	}
}

func (r *running) dial(addr string) *grpc.ClientConn {
	r.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *running) get(addr, path string) (int, string) {
	r.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (r *running) exits(want int, within time.Duration) {
	r.Helper()
	select {
	case code := <-r.code:
		if code != want {
			r.Errorf("exit code %d, want %d:\n%s", code, want, r.log)
		}
	case <-time.After(within):
		r.Fatalf("still running after %v:\n%s", within, r.log)
	}
}

func exampleRequest() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "example", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "client", Value: "alice"}}},
	}}
}

// onTransports runs f with the flags of each transport.
func onTransports(t *testing.T, f func(t *testing.T, transport []string)) {
	for _, name := range []string{"unary", "grpc"} {
		t.Run(name, func(t *testing.T) { f(t, []string{"--transport", name}) })
	}
}

func TestServe(t *testing.T) { onTransports(t, testServe) }

func testServe(t *testing.T, transport []string) {
	r := startServe(t, transport...)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn := r.dial(r.grpc)
	client := rls.NewRateLimitServiceClient(conn)
	over := 0
	for range 12 { // five a minute, and a minute may end meanwhile
		resp, err := client.ShouldRateLimit(ctx, exampleRequest())
		if err != nil {
			t.Fatal(err)
		}
		if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
			over++
		}
	}
	if over < 2 || over > 7 {
		t.Errorf("%d of 12 refused", over)
	}
	for _, service := range []string{"", "ratelimit"} {
		resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, resp, err)
		}
	}
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("health of an unknown service: %v", err)
	}
	stream, err := reflectionpb.NewServerReflectionClient(r.dial(r.services)).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if resp, err := stream.Recv(); err != nil || !strings.Contains(resp.String(), "grpc.health.v1.Health") {
		t.Errorf("reflection: %v, %v", resp, err)
	}
	_ = stream.CloseSend()

	for _, want := range []struct{ addr, path, text string }{
		{r.http, "/healthcheck", "OK"},
		{r.http, "/readyz", "ready"},
		{r.debug, "/rlconfig", "example.client: unit=MINUTE requests_per_unit=5"},
		{r.debug, "/metrics", `headgate_decisions_total{domain="example",outcome="over_limit",rule="client"}`},
		{r.debug, "/metrics", `headgate_memory_keys 1`},
		{r.debug, "/metrics", `headgate_rules 3`},
		{r.debug, "/debug/pprof/cmdline", ""},
	} {
		if code, body := r.get(want.addr, want.path); code != 200 || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d, no %q in\n%s", want.path, code, want.text, body)
		}
	}
	if code, _ := r.get(r.http, "/metrics"); code != 404 {
		t.Errorf("the service port serves /metrics: %d", code)
	}
	r.stop()
	r.exits(0, 10*time.Second)
}

// A watch of the health, which never ends by itself, sees the drain and does
// not hold it up.
func TestDrainEndsHealthWatches(t *testing.T) { onTransports(t, testDrainEndsHealthWatches) }

func testDrainEndsHealthWatches(t *testing.T, transport []string) {
	r := startServe(t, append(transport, "--drain-delay", "300ms", "--drain-timeout", "60s")...)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	watch, err := healthpb.NewHealthClient(r.dial(r.services)).Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := watch.Recv(); err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", resp, err)
	}
	r.stop()
	if resp, err := watch.Recv(); err != nil || resp.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", resp, err)
	}
	if code, body := r.get(r.http, "/healthcheck"); code != 500 || !strings.Contains(body, "draining") {
		t.Errorf("/healthcheck while draining: %d %s", code, body)
	}
	if code, _ := r.get(r.http, "/readyz"); code != 503 {
		t.Errorf("/readyz while draining: %d", code)
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("the watch goes on")
	}
	r.exits(0, 10*time.Second)
}

func TestBadRulesRefuseToStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(path, []byte("domain: d\ndescriptors:\n  - key: a\n    rate_limt: {}\n  - value: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	if code := run(context.Background(), []string{"serve", "--rules", path}, strings.NewReader(""), io.Discard, &errOut); code != exitError {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"bad.yaml:4:", "rate_limit", "bad.yaml:5:", "no key"} {
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("no %q in:\n%s", want, errOut.String())
		}
	}
}

func TestReadinessKnowsTheBackend(t *testing.T) {
	r := startServe(t, "--backend", "redis://127.0.0.1:1") // nobody listens there
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		code, body := r.get(r.http, "/readyz")
		if code == 503 && strings.Contains(body, "backend redis") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz: %d %s", code, body)
		}
	}
	if code, _ := r.get(r.http, "/healthcheck"); code != 200 {
		t.Errorf("/healthcheck: %d, though policies answer", code)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	resp, err := rls.NewRateLimitServiceClient(r.dial(r.grpc)).ShouldRateLimit(ctx, exampleRequest())
	if err != nil || resp.OverallCode != rls.RateLimitResponse_OK || resp.DynamicMetadata.Fields["degraded"].GetStringValue() != "allow" {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestAskOverTLS(t *testing.T) {
	certs := testenv.TestCerts(t)
	r := startServe(t, "--grpc-tls-cert", certs.Server.CertFile, "--grpc-tls-key", certs.Server.KeyFile, "--grpc-client-ca", certs.CAFile)
	ask := func(args ...string) (int, string) {
		var out bytes.Buffer
		args = append([]string{"ask", "example", "client=tls", "--addr", r.grpc, "--timeout", "5s"}, args...)
		return run(context.Background(), args, strings.NewReader(""), &out, &out), out.String()
	}
	if code, out := ask("--tls-ca", certs.CAFile, "--tls-cert", certs.Client.CertFile, "--tls-key", certs.Client.KeyFile); code != 0 || !strings.Contains(out, "per-client") {
		t.Errorf("with a client certificate: %d %s", code, out)
	}
	for _, args := range [][]string{nil, {"--tls"}, {"--tls-ca", certs.CAFile}} {
		if code, out := ask(args...); code != exitError || !strings.Contains(out, r.grpc) {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
}

// Warnings about rules are logged, not only counted.
func TestRuleWarnings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("domain: d\ndescriptors: [{key: a, shadow_mode: true}]\n")
	r := startServe(t, "--rules", path)
	if log := r.log.String(); !strings.Contains(log, "rules.yaml:2:") || !strings.Contains(log, "shadow_mode has no effect") {
		t.Errorf("no warning at start:\n%s", log)
	}
	write("domain: d\ndescriptors: [{key: b, quota_mode: true}]\n")
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(r.log.String(), "quota_mode has no effect"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no warning on reload:\n%s", r.log)
		}
	}
}

// What the unary transport does not serve it says where to find.
func TestUnknownMethod(t *testing.T) {
	r := startServe(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.dial(r.grpc).Invoke(ctx, "/some.Service/Method", &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "127.0.0.1:0") {
		t.Errorf("got %v", err)
	}
}
