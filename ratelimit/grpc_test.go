package ratelimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/ratelimit"
)

// onTransports runs f with the service on each transport, over a backend that
// decides at once and over one that may have to wait.
func onTransports(t *testing.T, rules string, f func(*ratelimit.Harness, *grpc.ClientConn)) {
	for _, local := range []bool{true, false} {
		caps := func(c *ratelimit.Config) { c.Caps = ratelimit.ModelCaps(local) }
		for name, start := range map[string]func(*ratelimit.Harness, net.Listener) (stop func()){
			"grpc": startGRPC, "unary": startUnary} {
			t.Run(fmt.Sprintf("%s local=%v", name, local), func(t *testing.T) {
				h := ratelimit.Setup(t, rules, caps)
				f(h, serve(h, start))
			})
		}
	}
}

func startGRPC(h *ratelimit.Harness, l net.Listener) func() {
	srv := grpc.NewServer(transport.ServerCodec(), grpc.MaxRecvMsgSize(messages.MaxMessageSize))
	transport.Register(srv, h.Service, countCall(h))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	return func() { srv.Stop(); wg.Wait() }
}

func startUnary(h *ratelimit.Harness, l net.Listener) func() {
	srv, err := unary.New(unary.Config{
		Handlers: map[string]unary.Handler{transport.ShouldRateLimit.Path(): transport.Handler(h.Service,
			transport.ShouldRateLimit, countCall(h))},
		MaxMessageSize: messages.MaxMessageSize,
		Log:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		h.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	return func() { _ = srv.Close(); wg.Wait() }
}

func countCall(h *ratelimit.Harness) ratelimit.Observe {
	return func(d time.Duration, r ratelimit.CallResult, calls int) { ratelimit.CountCall(h, d, r, calls) }
}

// serve starts a server for the service and returns a connection to it.
func serve(h *ratelimit.Harness, start func(*ratelimit.Harness, net.Listener) func()) *grpc.ClientConn {
	h.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.Fatal(err)
	}
	stop := start(h, l)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = conn.Close(); stop() })
	return conn
}

func TestCallsAreAnsweredOverGRPC(t *testing.T) { onTransports(t, ratelimit.BasicRules, testCalls) }

func testCalls(h *ratelimit.Harness, conn *grpc.ClientConn) {
	t := h.T
	client := rls.NewRateLimitServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	for i, opt := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		resp, err := client.ShouldRateLimit(ctx, ratelimit.ProtoRequest("d", "k=1"), opt...)
		if err != nil {
			t.Fatal(err)
		}
		st := resp.Statuses[0]
		if resp.OverallCode != rls.RateLimitResponse_OK || st.LimitRemaining != uint32(1-i) ||
			st.CurrentLimit.Name != "two" ||
			st.CurrentLimit.Unit != rls.RateLimitResponse_RateLimit_MINUTE || st.DurationUntilReset.Seconds != 60 {
			t.Errorf("answer %d: %v", i, resp)
		}
	}
	resp, err := client.ShouldRateLimit(ctx, ratelimit.ProtoRequest("d", "k=1"))
	if err != nil || resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT ||
		resp.DynamicMetadata.Fields["rule"].GetStringValue() != "d/k:two" {
		t.Errorf("third answer: %v, %v", resp, err)
	}
	for name, req := range map[string]*rls.RateLimitRequest{
		"no domain": ratelimit.ProtoRequest("", "k=1"), "no descriptors": ratelimit.ProtoRequest("d"),
		"many descriptors": ratelimit.ProtoRequest("d",
			strings.Split(strings.Repeat("k=1 ", messages.MaxDescriptors+1), " ")...),
	} {
		if _, err := client.ShouldRateLimit(ctx, req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	invalid := 3
	large, err := client.ShouldRateLimit(ctx,
		ratelimit.ProtoRequest("d", "k="+strings.Repeat("x", messages.MaxMessageSize)))
	if strings.Contains(t.Name(), "unary") { // grpc-go fails such a call before anybody can answer it
		invalid++
		if large.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT || err != nil {
			t.Errorf("large message: %v, %v", large, err)
		}
	} else if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("large message: %v", err)
	}
	if h.Count("call ok") != 2 || h.Count("call over_limit") != 1 || h.Count("call invalid") != invalid {
		t.Error("calls are counted wrongly")
	}
}

// Other services on the same grpc-go server keep their own messages.
func TestOtherServicesKeepTheirMessages(t *testing.T) {
	h := ratelimit.Setup(t, ratelimit.BasicRules)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := healthpb.NewHealthClient(serve(h, startGRPC)).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

// Pooled messages of concurrent calls must not get mixed up.
func TestConcurrentCallsKeepTheirMessagesApart(t *testing.T) {
	onTransports(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000, name: n}}]\n",
		testConcurrentCalls)
}

func testConcurrentCalls(h *ratelimit.Harness, conn *grpc.ClientConn) {
	t := h.T
	client := rls.NewRateLimitServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			who := string(rune('a' + g))
			for i := range 100 {
				resp, err := client.ShouldRateLimit(ctx, ratelimit.ProtoRequest("d", "k="+who, "none="+who))
				if err != nil || len(resp.Statuses) != 2 || resp.Statuses[0].LimitRemaining != uint32(999-i) ||
					resp.Statuses[1].CurrentLimit != nil {
					t.Errorf("%s %d: %v, %v", who, i, resp, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestJSON(t *testing.T) {
	h := ratelimit.Setup(t, ratelimit.FailingRules)
	handler := transport.JSONHandler(h.Service, func(time.Duration, ratelimit.CallResult, int) {})
	post := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		return w
	}
	body := func(key string) string {
		b, err := protojson.Marshal(ratelimit.ProtoRequest("d", key+"=1"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for i, want := range []int{200, 200, 429} {
		w := post(body("deny"))
		answer := new(rls.RateLimitResponse)
		if err := protojson.Unmarshal(w.Body.Bytes(), answer); err != nil || w.Code != want || len(answer.Statuses) != 1 {
			t.Errorf("answer %d: %d %s (%v)", i, w.Code, w.Body, err)
		}
	}
	for _, bad := range []string{"", "{", `{"nope":1}`, `{"domain":""}`, `{"domain":"d"}`} {
		if w := post(bad); w.Code != 400 {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
	if w := post(string(bytes.Repeat([]byte(" "), 2*messages.MaxMessageSize+1))); w.Code !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("large body: %d", w.Code)
	}
	h.Fail(backends.ErrUnavailable)
	if w := post(body("deny")); w.Code != 503 || w.Header().Get("X-Headgate-Degraded") == "" {
		t.Errorf("backend down, deny: %d %v", w.Code, w.Header())
	}
	if w := post(body("allow")); w.Code != 200 || w.Header().Get("X-Headgate-Degraded") == "" {
		t.Errorf("backend down, allow: %d %v", w.Code, w.Header())
	}
}
