package server

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestAnswersAreCounted asks for what no handler answers, too.
func TestAnswersAreCounted(t *testing.T) { onTransports(t, testAnswersAreCounted) }

func testAnswersAreCounted(t *testing.T, transport []string) {
	r := startServe(t, transport...)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn := r.Dial(r.GRPC)
	health := healthpb.NewHealthClient(conn)
	if _, err := health.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: "nobody"}); err == nil {
			t.Error("an unknown service is healthy")
		}
	}
	for range 3 {
		if err := conn.Invoke(ctx, "/no.Such/Method", &emptypb.Empty{}, &emptypb.Empty{}); err == nil {
			t.Error("an unknown method is answered")
		}
	}
	resp, err := http.Post("http://"+r.HTTP+"/json", "application/json", strings.NewReader("garbage"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	_, page := r.Get(r.Debug, "/metrics")
	for _, want := range []string{
		"headgate_requests_total{code=\"OK\",transport=\"T\"} 1",
		"headgate_requests_total{code=\"NotFound\",transport=\"T\"} 2",
		"headgate_requests_total{code=\"Unimplemented\",transport=\"T\"} 3",
		"headgate_requests_total{code=\"Unavailable\",transport=\"T\"} 0",
		"headgate_requests_total{code=\"400\",transport=\"json\"} 1",
		"headgate_connections{transport=\"T\"} 1",
		"headgate_connections_accepted_total{transport=\"T\"} 1",
	} {
		if want = strings.ReplaceAll(want, "T\"}", transport[1]+"\"}"); !strings.Contains(page, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
