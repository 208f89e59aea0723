package unary

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const rateLimitBootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: front
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: shop
              timeout: 5s
              failure_mode_deny: true
              rate_limit_service:
                transport_api_version: V3
                grpc_service:
                  envoy_grpc: {cluster_name: limiter}
                  initial_metadata: [{key: x-call, value: "%%REQ(x-call)%%"}]
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: backend}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
                    - actions: [{request_headers: {header_name: x-call, descriptor_key: call}}]
  clusters:
  - name: backend
    type: STATIC
    load_assignment:
      cluster_name: backend
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]
  - name: limiter
    type: STATIC
    connect_timeout: 5s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {connection_keepalive: {interval: 0.2s, timeout: 2s}}}
    load_assignment:
      cluster_name: limiter
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]
`

// TestEnvoyIsAnsweredDuringDrains has Envoy ask whether requests may pass. Those whose
// number is odd may not. The server's connections are drained all the time.
func TestEnvoyIsAnsweredDuringDrains(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.40.0", "1.38.3", "1.36.4"} {
		for _, worker := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/worker=%v", version, worker), func(t *testing.T) {
				t.Parallel()
				testEnvoy(t, version, worker)
			})
		}
	}
}

func testEnvoy(t *testing.T, version string, worker bool) {
	s, addr := start(t, func(conf *Config) {
		conf.MaxConnectionAge = 300 * time.Millisecond
		h := Handler{Metadata: []string{"x-call"}}
		decide := func(_ context.Context, calls []*Call) []*Call {
			for _, call := range calls {
				var n int
				fmt.Sscan(call.Metadata[0], &n)
				call.Reply = append(call.Reply, 0x08, byte(1+n%2)) // overall_code: OK or OVER_LIMIT
			}
			return nil
		}
		if worker {
			h.Serve = func(ctx context.Context, calls []*Call) { decide(ctx, calls) }
		} else {
			h.Inline = decide
		}
		conf.Handlers = map[string]Handler{"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit": h}
	})
	limiter, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer backend.Close()
	envoy := testenv.StartEnvoy(t, version, fmt.Sprintf(rateLimitBootstrap, backend.Listener.Addr().(*net.TCPAddr).Port,
		limiter.Port))
	url := "http://" + envoy.ListenerAddr("front")
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	more := func() bool { // for a second, and until connections were drained, however slow the machine is
		took := time.Since(begin)
		return took < time.Second || s.Stats().Accepted < 3 && took < 20*time.Second
	}
	for range 16 {
		wg.Go(func() {
			for more() {
				n := next.Add(1)
				if got, want := get(client, url, n), 200+n%2*229; got != fmt.Sprint(want) {
					t.Errorf("request %d: %s, want %d", n, got, want)
					return
				}
			}
		})
	}
	wg.Wait()
	got := s.Stats()
	if got.Answered != uint64(next.Load()) || got.Failed+got.Cancelled+got.ProtocolErrors != 0 || got.Accepted < 3 {
		t.Errorf("%d requests: %+v", next.Load(), got)
	}
	t.Logf("%d requests on %d connections", got.Answered, got.Accepted)
}

func get(client http.Client, url string, n int64) string {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	req.Header.Set("X-Call", fmt.Sprint(n))
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode)
}
