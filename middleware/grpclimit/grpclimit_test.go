package grpclimit

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate"
)

const rules = `
domain: d
descriptors:
  - key: client
    limits: [{algorithm: sliding_log, limit: 3, window: 1h}]
  - key: token
    limits: [{algorithm: sliding_log, limit: 1, window: 1h}]
  - key: method
    value: /grpc.health.v1.Health/Watch
    concurrency: [{threshold: 1, response: {statusCode: 429, content: one watch at a time}}]
`

// start returns a client of a health service whose calls are limited.
func start(t *testing.T, conf Config) healthpb.HealthClient {
	t.Helper()
	limiter, err := headgate.Open(t.Context(),
		headgate.Options{Rules: []headgate.Rules{headgate.YAML("rules.yaml", rules)}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.UnaryInterceptor(Unary(limiter, conf)), grpc.StreamInterceptor(Stream(limiter, conf)))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	var running sync.WaitGroup
	running.Go(func() { _ = srv.Serve(l) })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		running.Wait()
		_ = limiter.Close()
	})
	return healthpb.NewHealthClient(conn)
}

func TestUnaryCallsAreLimited(t *testing.T) {
	client := start(t, Config{Domain: "d"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 4 {
		var md metadata.MD
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&md))
		want := codes.OK
		if i == 3 {
			want = codes.ResourceExhausted
		}
		if status.Code(err) != want || md.Get("x-ratelimit-limit")[0] != "3" ||
			md.Get("x-ratelimit-remaining")[0] != strconv.Itoa(max(2-i, 0)) {
			t.Errorf("call %d: %v, %v", i, err, md)
		}
		if i < 3 {
			continue
		}
		details := status.Convert(err).Details()
		info, ok := details[0].(*errdetails.RetryInfo)
		if !ok || info.RetryDelay.AsDuration() < 59*time.Minute || md.Get("retry-after") == nil {
			t.Errorf("refusal: %v, %v", details, md)
		}
	}
}

// Each value of metadata counts on its own; a call without it is not limited by it.
func TestMetadataTellCallersApart(t *testing.T) {
	client := start(t, Config{Domain: "d", Descriptors: []Descriptor{{{Key: "token", Value: Metadata("Authorization")}}}})
	for _, c := range []struct {
		token string
		want  codes.Code
	}{{"a", codes.OK}, {"a", codes.ResourceExhausted}, {"b", codes.OK}, {"", codes.OK}, {"", codes.OK}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if c.token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", c.token)
		}
		if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != c.want {
			t.Errorf("token %q: %v, want %v", c.token, err, c.want)
		}
		cancel()
	}
}

// A stream has its place until it ends.
// gRPC keeps the host of a call under another name. A rule by host must match all the same.
func TestHostIsMetadata(t *testing.T) {
	for _, name := range []string{"Host", ":authority"} {
		client := start(t, Config{Domain: "d", Descriptors: []Descriptor{{{Key: "token", Value: Metadata(name)}}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
			if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != want {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}
}

func TestStreamIsInFlightUntilItEnds(t *testing.T) {
	client := start(t, Config{Domain: "d", Descriptors: []Descriptor{{{Key: "method", Value: Method()}}}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := func(ctx context.Context) error {
		stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	first, leave := context.WithCancel(ctx)
	if err := watch(first); err != nil {
		t.Fatal(err)
	}
	if err := watch(ctx); status.Code(err) != codes.ResourceExhausted ||
		status.Convert(err).Message() != "one watch at a time" {
		t.Errorf("a second stream: %v", err)
	}
	leave()
	for status.Code(watch(ctx)) == codes.ResourceExhausted {
		if ctx.Err() != nil {
			t.Fatal("the place of a stream that has ended stays taken")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
