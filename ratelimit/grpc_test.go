package ratelimit

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

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/unary"
)

// onTransports runs f with the service on each transport, over a backend that
// decides at once and over one that may have to wait.
func onTransports(t *testing.T, rules string, f func(*harness, *grpc.ClientConn)) {
	for _, local := range []bool{true, false} {
		caps := func(c *Config) { c.Caps = modelCaps(local) }
		for name, start := range map[string]func(*harness, net.Listener) (stop func()){"grpc": startGRPC, "unary": startUnary} {
			t.Run(fmt.Sprintf("%s local=%v", name, local), func(t *testing.T) {
				h := setup(t, rules, caps)
				f(h, h.serve(start))
			})
		}
	}
}

func startGRPC(h *harness, l net.Listener) func() {
	srv := grpc.NewServer(ServerCodec(), grpc.MaxRecvMsgSize(MaxMessageSize))
	Register(srv, h.Service, h.countCall)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	return func() { srv.Stop(); wg.Wait() }
}

func startUnary(h *harness, l net.Listener) func() {
	srv, err := unary.New(unary.Config{
		Handlers:       map[string]unary.Handler{Method: UnaryHandler(h.Service, h.countCall)},
		MaxMessageSize: MaxMessageSize,
		Log:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		h.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	return func() { _ = srv.Close(); wg.Wait() }
}

func (h *harness) countCall(_ time.Duration, r CallResult) { h.counts.add("call " + r.String()) }

// serve starts a server for the service and returns a connection to it.
func (h *harness) serve(start func(*harness, net.Listener) func()) *grpc.ClientConn {
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

func protoRequest(domain string, entries ...string) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: domain}
	for _, text := range entries {
		d := new(common.RateLimitDescriptor)
		for _, e := range desc(text).Entries {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func TestCalls(t *testing.T) { onTransports(t, basic, testCalls) }

func testCalls(h *harness, conn *grpc.ClientConn) {
	t := h.T
	client := rls.NewRateLimitServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	for i, opt := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		resp, err := client.ShouldRateLimit(ctx, protoRequest("d", "k=1"), opt...)
		if err != nil {
			t.Fatal(err)
		}
		st := resp.Statuses[0]
		if resp.OverallCode != rls.RateLimitResponse_OK || st.LimitRemaining != uint32(1-i) || st.CurrentLimit.Name != "two" ||
			st.CurrentLimit.Unit != rls.RateLimitResponse_RateLimit_MINUTE || st.DurationUntilReset.Seconds != 60 {
			t.Errorf("answer %d: %v", i, resp)
		}
	}
	resp, err := client.ShouldRateLimit(ctx, protoRequest("d", "k=1"))
	if err != nil || resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT || resp.DynamicMetadata.Fields["rule"].GetStringValue() != "d/k:two" {
		t.Errorf("third answer: %v, %v", resp, err)
	}
	for name, req := range map[string]*rls.RateLimitRequest{
		"no domain": protoRequest("", "k=1"), "no descriptors": protoRequest("d"),
		"many descriptors": protoRequest("d", strings.Split(strings.Repeat("k=1 ", maxDescriptors+1), " ")...),
	} {
		if _, err := client.ShouldRateLimit(ctx, req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.ShouldRateLimit(ctx, protoRequest(strings.Repeat("d", MaxMessageSize+1), "k=1")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("large message: %v", err)
	}
	if h.counts.n["call ok"] != 2 || h.counts.n["call over_limit"] != 1 || h.counts.n["call invalid"] != 3 {
		t.Errorf("counts %v", h.counts.n)
	}
}

// Other services on the same grpc-go server keep their own messages.
func TestOtherServices(t *testing.T) {
	h := setup(t, basic)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := healthpb.NewHealthClient(h.serve(startGRPC)).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

// Pooled messages of concurrent calls must not get mixed up.
func TestConcurrentCalls(t *testing.T) {
	onTransports(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000, name: n}}]\n", testConcurrentCalls)
}

func testConcurrentCalls(h *harness, conn *grpc.ClientConn) {
	t := h.T
	client := rls.NewRateLimitServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			who := string(rune('a' + g))
			for i := range 100 {
				resp, err := client.ShouldRateLimit(ctx, protoRequest("d", "k="+who, "none="+who))
				if err != nil || len(resp.Statuses) != 2 || resp.Statuses[0].LimitRemaining != uint32(999-i) || resp.Statuses[1].CurrentLimit != nil {
					t.Errorf("%s %d: %v, %v", who, i, resp, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestJSON(t *testing.T) {
	h := setup(t, failing)
	handler := JSONHandler(h.Service, func(time.Duration, CallResult) {})
	post := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		return w
	}
	body := func(key string) string {
		b, err := protojson.Marshal(protoRequest("d", key+"=1"))
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
	if w := post(string(bytes.Repeat([]byte(" "), maxJSON+1))); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("large body: %d", w.Code)
	}
	h.be.err = backends.ErrUnavailable
	if w := post(body("deny")); w.Code != 503 || w.Header().Get(degradedHeader) == "" {
		t.Errorf("backend down, deny: %d %v", w.Code, w.Header())
	}
	if w := post(body("allow")); w.Code != 200 || w.Header().Get(degradedHeader) == "" {
		t.Errorf("backend down, allow: %d %v", w.Code, w.Header())
	}
}

// TestLateCallsEndRequests: a call that nobody waits for ends the requests in flight
// that its message ends. Other such calls cost next to nothing: they are not decoded.
func TestLateCallsEndRequests(t *testing.T) {
	h := setup(t, inFlightRules)
	abandoned := UnaryHandler(h.Service, h.countCall).Abandoned
	late := func(entries string, negative bool) *unary.Call {
		m := protoRequest("d", entries)
		m.Descriptors[0].IsNegativeHits = negative
		message, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return &unary.Call{Message: message}
	}
	token := h.acquire("tenant=a")
	h.ask(desc("anon=x"))
	h.wantInFlight(2)
	abandoned(late(OpKey+"=release,"+LeaseEntry+"="+token, false))
	abandoned(late("anon=x", true))
	ordinary := late("tenant=b", false)
	if n := testing.AllocsPerRun(100, func() { abandoned(ordinary) }); n != 0 {
		t.Errorf("%v objects are allocated for a call that ends nothing, want 0", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	h.Close(ctx) // returns when all is given back
	h.wantInFlight(0)
}

// What finds no worker is answered by policy, at once.
func TestCallsAreAnsweredWithoutTheBackendWhenShed(t *testing.T) {
	h := setup(t, failing, func(c *Config) { c.Caps = modelCaps(false) })
	shed := UnaryHandler(h.Service, h.countCall).Shed
	var calls []*unary.Call
	for _, key := range []string{"allow", "deny"} {
		message, err := proto.Marshal(protoRequest("d", key+"=1"))
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, &unary.Call{Message: message})
	}
	calls = append(calls, &unary.Call{Message: []byte{0xff}}, &unary.Call{Message: calls[0].Message, Deadline: time.Unix(1, 0)})
	shed(calls)
	for i, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT} {
		answer := new(rls.RateLimitResponse)
		if err := proto.Unmarshal(calls[i].Reply, answer); err != nil || answer.OverallCode != want || answer.DynamicMetadata.Fields["degraded"] == nil {
			t.Errorf("call %d: %v, %v", i, answer, err)
		}
	}
	if calls[2].Err == nil || calls[2].Err.Code != unary.InvalidArgument || calls[3].Err == nil || calls[3].Err.Code != unary.DeadlineExceeded {
		t.Errorf("malformed: %v, late: %v", calls[2].Err, calls[3].Err)
	}
	if h.be.takes != 0 {
		t.Errorf("the backend was asked %d times", h.be.takes)
	}
}
