package transport_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

const tokenRules = `
domain: d
descriptors:
- {key: exact, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: tokens, rate_limit: {unit: year, requests_per_unit: 10000}}
- {key: capped, rate_limit: {unit: hour, requests_per_unit: 10}, overflow: saturate}
- {key: held, rate_limit: {unit: year, requests_per_unit: 10000}, reserve: {amount: estimate, default: 5000}}
- {key: held-oldest, rate_limit: {unit: year, requests_per_unit: 10000},
   reserve: {amount: estimate, default: 5000, match: oldest}}
- {key: flight, concurrency: [{threshold: 5, response: {statusCode: 429}}]}
`

func newService(t *testing.T) *ratelimit.Service {
	t.Helper()
	return serviceWith(t, messages.Encoder{})
}

func serviceWith(t *testing.T, encoder ratelimit.Encoder) *ratelimit.Service {
	t.Helper()
	return serviceOf(t, tokenRules, encoder, func() limit.Instant { return limit.InstantOf(time.Now()) })
}

// serviceOf returns a service on counters in memory.
func serviceOf(t *testing.T, rules string, encoder ratelimit.Encoder, now func() limit.Instant) *ratelimit.Service {
	t.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "test.yaml", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	be := memory.New(memory.Config{})
	s, err := ratelimit.New(ratelimit.Config{
		Backend: be, Caps: memory.Caps(), Local: be, Encoder: encoder, Log: slog.New(slog.DiscardHandler), Now: now,
	}, set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onTransports runs f with a connection to the service on each transport.
func onTransports(t *testing.T, f func(*testing.T, *grpc.ClientConn)) {
	observe := func(time.Duration, ratelimit.CallResult, int) {}
	for name, start := range map[string]func(*testing.T, net.Listener) (stop func()){
		"grpc": func(t *testing.T, l net.Listener) func() {
			srv := grpc.NewServer(transport.ServerCodec())
			transport.Register(srv, newService(t), observe)
			var wg sync.WaitGroup
			wg.Go(func() { _ = srv.Serve(l) })
			return func() { srv.Stop(); wg.Wait() }
		},
		"unary": func(t *testing.T, l net.Listener) func() {
			srv, err := unary.New(unary.Config{Handlers: transport.Handlers(newService(t), observe)})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() { _ = srv.Serve(l) })
			return func() { _ = srv.Close(); wg.Wait() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer start(t, l)()
			conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			f(t, conn)
		})
	}
}

// call calls a method about one descriptor with hits for the request, and returns its status.
func call(conn *grpc.ClientConn, m *transport.Method, key string, hits uint32) (*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp := new(rls.RateLimitResponse)
	entry := &common.RateLimitDescriptor_Entry{Key: key, Value: "v"}
	err := conn.Invoke(ctx, m.Path(), &rls.RateLimitRequest{Domain: "d", HitsAddend: hits,
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{entry}}},
	}, resp)
	return resp, err
}

// TestKuadrantsCheckTakesNothingAndItsReportCharges: checks leave the counter as it is, whatever hits they name, and
// refuse when nothing is left. Reports charge by the rule's overflow, and what is left where that is to refuse.
func TestKuadrantsCheckTakesNothingAndItsReportCharges(t *testing.T) {
	onTransports(t, func(t *testing.T, conn *grpc.ClientConn) {
		ok, over := rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
		for i, step := range []struct {
			method *transport.Method
			key    string
			hits   uint32
			code   rls.RateLimitResponse_Code
			left   uint32
		}{
			{transport.CheckRateLimit, "exact", 7, ok, 10},
			{transport.CheckRateLimit, "exact", 0, ok, 10},
			{transport.Report, "exact", 0, ok, 9},
			{transport.Report, "exact", 4, ok, 5},
			{transport.ShouldRateLimit, "exact", 6, over, 5}, // refused: nothing is charged
			{transport.CheckRateLimit, "exact", 6, ok, 5},
			{transport.Report, "exact", 6, over, 0}, // the work is done: it takes what is left
			{transport.CheckRateLimit, "exact", 0, over, 0},
			{transport.ShouldRateLimit, "exact", 1, over, 0},
			{transport.Report, "capped", 12, over, 0}, // it takes what is left
			{transport.CheckRateLimit, "capped", 0, over, 0},
			{transport.Report, "no rule", 3, ok, 0},
		} {
			resp, err := call(conn, step.method, step.key, step.hits)
			if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			if got := resp.Statuses[0]; resp.OverallCode != step.code || got.LimitRemaining != step.left {
				t.Errorf("step %d, %s of %d for %s: %v with %d left, want %v with %d", i, step.method.Name, step.hits,
					step.key, resp.OverallCode, got.LimitRemaining, step.code, step.left)
			}
		}
	})
}

// TestKuadrantsReportsUseABudgetUp: of 100 requests that cost 3,000 each, a budget of 10,000 lets four pass, as
// Limitador's does.
func TestKuadrantsReportsUseABudgetUp(t *testing.T) {
	onTransports(t, func(t *testing.T, conn *grpc.ClientConn) {
		passed := 0
		for range 100 {
			resp, err := call(conn, transport.CheckRateLimit, "tokens", 1)
			if err != nil {
				t.Fatal(err)
			}
			if resp.OverallCode != rls.RateLimitResponse_OK {
				continue
			}
			passed++
			if _, err := call(conn, transport.Report, "tokens", 3000); err != nil {
				t.Fatal(err)
			}
		}
		if passed != 4 {
			t.Errorf("%d requests passed, want 4", passed)
		}
	})
}

// TestKuadrantsReportBeginsNoRequestInFlight: nobody would end it.
func TestKuadrantsReportBeginsNoRequestInFlight(t *testing.T) {
	onTransports(t, func(t *testing.T, conn *grpc.ClientConn) {
		resp, err := call(conn, transport.CheckRateLimit, "flight", 1)
		if err != nil || resp.OverallCode != rls.RateLimitResponse_OK {
			t.Errorf("check: %v, %v", resp, err)
		}
		if _, err := call(conn, transport.Report, "flight", 1); status.Code(err) != codes.InvalidArgument {
			t.Errorf("report: %v, want INVALID_ARGUMENT", err)
		}
	})
}

// TestTransportsDemandAnEncoder: a service that is made for callers in this process is served to nobody: answers would
// lack the limit that decided.
func TestTransportsDemandAnEncoder(t *testing.T) {
	s, observe := serviceWith(t, nil), func(time.Duration, ratelimit.CallResult, int) {}
	for name, serve := range map[string]func(){
		"unary":   func() { transport.Handlers(s, observe) },
		"grpc-go": func() { transport.Register(grpc.NewServer(), s, observe) },
		"json":    func() { transport.JSONHandler(s, observe) },
		"answer":  func() { _, _ = transport.Answer(t.Context(), s, &rls.RateLimitRequest{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s serves a service without an encoder", name)
				}
			}()
			serve()
		}()
	}
}
