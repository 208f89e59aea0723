package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// streamLimit is how long a stream's other end may take to answer.
const streamLimit = 30 * time.Second

const streamRules = `
domain: e2e
resources:
- path: %s
  lease_ttl: %v
  concurrency: [{threshold: 5, response: {statusCode: 503, headers: {x-reason: crowded}, content: five are inside}}]
`

// A stream is open, for the client and for the application, until closed.
type stream interface {
	// Use sends something through it, and fails if it is not open any more.
	Use() error
	Close() error
}

// errCrowded is why a stream was not opened: it is one too many.
var errCrowded = errors.New("refused by headgate")

// TestInFlightStreams: a stream that is open for longer than its lease lives is
// in flight for all that time, and no longer.
func TestInFlightStreams(t *testing.T) {
	t.Parallel()
	const life = 5 * time.Second
	for name, c := range map[string]struct {
		path  string
		start func(*testing.T) streamApp
	}{
		"websocket": {"/sockets/echo", startEcho},
		"grpc":      {grpc_health_v1.Health_Watch_FullMethodName, startHealth},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := c.start(t)
			s := startStage(t, latest(t), staging{
				rules:  fmt.Sprintf(streamRules, c.path, life),
				routes: "- {match: {prefix: /}, route: {cluster: streams, timeout: 0s}}",
				// Lists of both configurations are put together.
				envoy: []string{"--config-yaml", "static_resources: {clusters: [{name: streams, connect_timeout: 1s, " +
					app.cluster + "}]}"},
			})
			open := app.client(s)
			start := time.Now()
			var streams []stream
			for range 5 {
				st, err := open()
				if err != nil {
					t.Fatalf("stream %d: %v", len(streams)+1, err)
				}
				defer st.Close()
				streams = append(streams, st)
			}
			use := func() {
				t.Helper()
				for i, st := range streams {
					if err := st.Use(); err != nil {
						t.Errorf("stream %d of five: %v", i+1, err)
					}
				}
				if st, err := open(); !errors.Is(err, errCrowded) {
					t.Errorf("a sixth stream: %v %v", st, err)
				}
				if n := s.services[0].Metric("headgate_requests_in_flight", `domain="e2e"`); n != 5 {
					t.Errorf("%v requests are in flight, says the metric", n)
				}
			}
			use()
			for opened := time.Now(); time.Since(opened) < life; {
				s.wantRenewed(5)
			}
			t.Logf("five have been open for up to %v", time.Since(start))
			use()

			// They end one by one, each by being told of.
			for i, st := range streams {
				if err := st.Close(); err != nil {
					t.Errorf("stream %d: close: %v", i+1, err)
				}
				s.wantLeft(i+1, c.path)
			}
			s.wantAllBack(c.path)
			if n := s.leases("released"); n != 5 {
				t.Errorf("%d leases were released, want 5", n)
			}
		})
	}
}

// A streamApp is an application that clients keep streams open to.
type streamApp struct {
	cluster string // its fields for Envoy, a flow mapping without its braces
	client  func(*stage) (open func() (stream, error))
}

// endpoint says where the application is.
func endpoint(t *testing.T, addr net.Addr) string {
	t.Helper()
	a, err := address(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	return "load_assignment: {cluster_name: streams, endpoints: [{lb_endpoints: [{endpoint: {address: " + a + "}}]}]}"
}

// startEcho runs an application of websockets, which send back what they get.
func startEcho(t *testing.T) streamApp {
	server := httptest.NewServer(websocket.Handler(func(ws *websocket.Conn) { _, _ = io.Copy(ws, ws) }))
	t.Cleanup(server.Close)
	return streamApp{endpoint(t, server.Listener.Addr()), websockets}
}

func websockets(s *stage) func() (stream, error) {
	return func() (stream, error) {
		config, err := websocket.NewConfig("ws://"+s.addr+"/sockets/echo", "http://"+s.addr)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), streamLimit)
		defer cancel()
		ws, err := config.DialContext(ctx)
		if err == nil {
			return socket{ws}, nil
		}
		var refused *websocket.DialError
		if !errors.As(err, &refused) || refused.Err != websocket.ErrBadStatus {
			return nil, err
		}
		// It does not say which status. The same without the upgrade is as much
		// of a request.
		var c tally
		c.add(s.try("/sockets/echo"))
		if c.want(s.t).refused == 1 {
			return nil, errCrowded
		}
		return nil, err
	}
}

type socket struct{ *websocket.Conn }

func (s socket) Use() error {
	const text = "are you there?"
	echo := make([]byte, len(text))
	if err := s.SetDeadline(time.Now().Add(streamLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(s, text); err != nil {
		return err
	}
	if _, err := io.ReadFull(s, echo); err != nil {
		return err
	}
	if string(echo) != text {
		return fmt.Errorf("it sent %q", echo)
	}
	return nil
}

// startHealth runs an application that has gRPC's health service.
func startHealth(t *testing.T) streamApp {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, app := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, app)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("the application: %v", err)
		}
	})
	const speaksHTTP2 = `, typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {
		"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions,
		explicit_http_config: {http2_protocol_options: {}}}}`
	return streamApp{endpoint(t, l.Addr()) + speaksHTTP2, func(s *stage) func() (stream, error) { return watches(s, app) }}
}

func watches(s *stage, app *health.Server) func() (stream, error) {
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	client, opened := grpc_health_v1.NewHealthClient(conn), 0
	return func() (stream, error) {
		opened++
		w := &watch{app: app, name: fmt.Sprint("watched ", opened)}
		var ctx context.Context
		ctx, w.cancel = context.WithCancel(s.t.Context())
		if w.told, err = client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: w.name}); err == nil {
			err = w.wait(grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN)
		}
		if err == nil {
			return w, nil
		}
		w.cancel()
		if st := status.Convert(err); st.Code() == grpccodes.ResourceExhausted && st.Message() == "five are inside" {
			err = errCrowded
		}
		return nil, err
	}
}

// A watch is a call that tells the health of something that nobody else watches.
type watch struct {
	app    *health.Server
	name   string
	told   grpc_health_v1.Health_WatchClient
	cancel context.CancelFunc
}

// Use changes the health, there and back.
func (w *watch) Use() error {
	for _, h := range []grpc_health_v1.HealthCheckResponse_ServingStatus{
		grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING,
	} {
		w.app.SetServingStatus(w.name, h)
		if err := w.wait(h); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for a health.
func (w *watch) wait(want grpc_health_v1.HealthCheckResponse_ServingStatus) error {
	defer time.AfterFunc(streamLimit, w.cancel).Stop()
	got, err := w.told.Recv()
	if err == nil && got.Status != want {
		err = fmt.Errorf("%s is %v, want %v", w.name, got.Status, want)
	}
	return err
}

func (w *watch) Close() error {
	w.cancel()
	return nil
}
