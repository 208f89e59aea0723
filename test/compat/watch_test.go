package compat

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/health" // clients that watch
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Clients that watch the health of the gRPC port, as they may with the reference, can call headgate, and learn when it
// is drained.
func TestWatchOfHealth(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 1000))
	for _, transport := range []string{"unary", "grpc"} {
		t.Run(transport, func(t *testing.T) {
			s := start(t, rules(root, "HEADGATE_TRANSPORT", transport))
			conn, err := grpc.NewClient("passthrough:///"+s.grpc, grpc.WithTransportCredentials(s.creds),
				grpc.WithDefaultServiceConfig(`{"healthCheckConfig": {"serviceName": "ratelimit"},
					"loadBalancingConfig": [{"round_robin": {}}]}`))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			// It waits until the channel is ready, which it is when the watch says so.
			if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request(1, descriptor("a=b")),
				grpc.WaitForReady(true)); err != nil {
				t.Errorf("a client that watches cannot call: %v", err)
			}
			watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: "ratelimit"})
			if err != nil {
				t.Fatal(err)
			}
			first, err := watch.Recv()
			if err != nil || first.Status != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("Watch: %v %v", first, err)
			}
			other, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: "other"})
			if err != nil {
				t.Fatal(err)
			}
			if of, err := other.Recv(); err != nil || of.Status != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
				t.Errorf("Watch of another service: %v %v", of, err)
			}
			s.Terminate()
			next, err := watch.Recv()
			if err != nil && err != io.EOF || err == nil && next.Status != healthpb.HealthCheckResponse_NOT_SERVING {
				t.Errorf("while it drains: %v %v", next, err)
			}
		})
	}
}
