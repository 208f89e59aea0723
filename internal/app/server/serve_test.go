package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

func TestServeAnswersOnEveryPort(t *testing.T) { onTransports(t, testServe) }

func testServe(t *testing.T, transport []string) {
	r := startServe(t, transport...)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn := r.Dial(r.GRPC)
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
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: "nobody"}); status.Code(
		err) != codes.NotFound {
		t.Errorf("health of an unknown service: %v", err)
	}
	stream, err := reflectionpb.NewServerReflectionClient(r.Dial(r.Services)).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if resp, err := stream.Recv(); err != nil || !strings.Contains(resp.String(), "grpc.health.v1.Health") {
		t.Errorf("reflection: %v, %v", resp, err)
	}
	_ = stream.CloseSend()

	for _, want := range []struct{ addr, path, text string }{
		{r.HTTP, "/healthcheck", "OK"},
		{r.HTTP, "/readyz", "ready"},
		{r.Debug, "/rlconfig", "example.client: unit=MINUTE requests_per_unit=5"},
		{r.Debug, "/metrics", `headgate_decisions_total{domain="example",outcome="over_limit",rule="client"}`},
		{r.Debug, "/metrics", `headgate_memory_keys 1`},
		{r.Debug, "/metrics", `headgate_rules 3`},
		{r.Debug, "/debug/pprof/cmdline", ""},
	} {
		if code, body := r.Get(want.addr, want.path); code != 200 || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d, no %q in\n%s", want.path, code, want.text, body)
		}
	}
	if code, _ := r.Get(r.HTTP, "/metrics"); code != 404 {
		t.Errorf("the service port serves /metrics: %d", code)
	}
	r.Stop()
	r.Ends(10 * time.Second)
}

// A watch of the health, which never ends by itself, sees the drain and does
// not hold it up.
func TestDrainEndsHealthWatches(t *testing.T) { onTransports(t, testDrainEndsHealthWatches) }

func testDrainEndsHealthWatches(t *testing.T, transport []string) {
	r := startServe(t, append(transport, "--drain-delay", "300ms", "--drain-timeout", "60s")...)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	watch, err := healthpb.NewHealthClient(r.Dial(r.Services)).Watch(ctx,
		&healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := watch.Recv(); err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", resp, err)
	}
	r.Stop()
	if resp, err := watch.Recv(); err != nil || resp.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", resp, err)
	}
	if code, body := r.Get(r.HTTP, "/healthcheck"); code != 500 || !strings.Contains(body, "draining") {
		t.Errorf("/healthcheck while draining: %d %s", code, body)
	}
	if code, _ := r.Get(r.HTTP, "/readyz"); code != 503 {
		t.Errorf("/readyz while draining: %d", code)
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("the watch goes on")
	}
	r.Ends(10 * time.Second)
}

func TestBadRulesRefuseToStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(path, []byte("domain: d\ndescriptors:\n  - key: a\n    rate_limt: {}\n  - value: b\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	text := startError(t, "--rules", path)
	for _, want := range []string{"bad.yaml:4:", "rate_limit", "bad.yaml:5:", "no key"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestReadinessKnowsTheBackend(t *testing.T) {
	r := startServe(t, "--backend", "redis://127.0.0.1:1") // nobody listens there
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		code, body := r.Get(r.HTTP, "/readyz")
		if code == 503 && strings.Contains(body, "backend redis") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz: %d %s", code, body)
		}
	}
	if code, _ := r.Get(r.HTTP, "/healthcheck"); code != 200 {
		t.Errorf("/healthcheck: %d, though policies answer", code)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	resp, err := rls.NewRateLimitServiceClient(r.Dial(r.GRPC)).ShouldRateLimit(ctx, exampleRequest())
	if err != nil || resp.OverallCode != rls.RateLimitResponse_OK ||
		resp.DynamicMetadata.Fields["degraded"].GetStringValue() != "allow" {
		t.Errorf("%v, %v", resp, err)
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
	if log := r.Log.String(); !strings.Contains(log, "rules.yaml:2:") ||
		!strings.Contains(log, "shadow_mode has no effect") {
		t.Errorf("no warning at start:\n%s", log)
	}
	write("domain: d\ndescriptors: [{key: b, quota_mode: true}]\n")
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(r.Log.String(),
		"quota_mode has no effect"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no warning on reload:\n%s", r.Log)
		}
	}
}

// What the unary transport does not serve it says where to find.
func TestUnknownMethod(t *testing.T) {
	r := startServe(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.Dial(r.GRPC).Invoke(ctx, "/some.Service/Method", &healthpb.HealthCheckRequest{},
		&healthpb.HealthCheckResponse{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "127.0.0.1:0") {
		t.Errorf("got %v", err)
	}
}
