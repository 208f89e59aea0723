// Package collector is an OpenTelemetry collector for tests: it takes spans over gRPC and over
// HTTP, by the generated code of the protocol, and shows them. It is no product's collector; the
// exporters that talk to it are the real ones.
package collector

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// A Collector is a running collector.
type Collector struct {
	GRPC, HTTP string // addresses, host:port

	collect.UnimplementedTraceServiceServer
	t     testing.TB
	stall bool

	mu      sync.Mutex
	spans   []Span
	tokens  []string // of the requests
	batches int      // that have arrived
}

// A Span is one that has arrived.
type Span struct {
	Name                       string
	TraceID, SpanID, ParentID  string // hexadecimal; ParentID is "" for a root
	Kind                       v1.Span_SpanKind
	Attributes, Resource       map[string]string
	TraceState, Error, Service string
	Start, End                 time.Time
}

// Start runs a collector until the test ends. With tls it wants TLS.
func Start(t testing.TB, conf *tls.Config) *Collector { return start(t, conf, false) }

// StartStalled runs a collector that takes every request and never answers one.
func StartStalled(t testing.TB) *Collector { return start(t, nil, true) }

func start(t testing.TB, conf *tls.Config, stall bool) *Collector {
	t.Helper()
	c := &Collector{t: t, stall: stall}
	var options []grpc.ServerOption
	if conf != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(conf)))
	}
	server := grpc.NewServer(options...)
	collect.RegisterTraceServiceServer(server, c)
	overGRPC, address := c.listen()
	c.GRPC = address
	go func() { _ = server.Serve(overGRPC) }()
	t.Cleanup(server.Stop)

	plain := &http.Server{Handler: http.HandlerFunc(c.serveHTTP), ReadHeaderTimeout: 10 * time.Second, TLSConfig: conf}
	overHTTP, address := c.listen()
	c.HTTP = address
	go func() {
		if conf != nil {
			_ = plain.ServeTLS(overHTTP, "", "")
			return
		}
		_ = plain.Serve(overHTTP)
	}()
	t.Cleanup(func() { _ = plain.Close() })
	return c
}

func (c *Collector) listen() (net.Listener, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	return l, l.Addr().String()
}

// Export takes spans over gRPC.
func (c *Collector) Export(ctx context.Context,
	req *collect.ExportTraceServiceRequest) (*collect.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	c.take(req, md.Get("x-token"))
	c.wait(ctx)
	return &collect.ExportTraceServiceResponse{}, nil
}

func (c *Collector) serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	var req collect.ExportTraceServiceRequest
	switch {
	case r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf":
		http.Error(w, "not the path or type of spans", http.StatusNotFound)
	case err != nil || proto.Unmarshal(body, &req) != nil:
		http.Error(w, "no spans", http.StatusBadRequest)
	default:
		c.take(&req, r.Header.Values("x-token"))
		c.wait(r.Context())
		w.Header().Set("Content-Type", "application/x-protobuf")
	}
}

// wait waits for the end of a request, in a collector that is stalled.
func (c *Collector) wait(ctx context.Context) {
	if c.stall {
		<-ctx.Done()
	}
}

func (c *Collector) take(req *collect.ExportTraceServiceRequest, token []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches++
	c.tokens = append(c.tokens, token...)
	for _, r := range req.ResourceSpans {
		resource := texts(r.Resource.GetAttributes())
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, Span{
					Name: s.Name, Kind: s.Kind, TraceState: s.TraceState, Error: s.Status.GetMessage(),
					TraceID: hex.EncodeToString(s.TraceId), SpanID: hex.EncodeToString(s.SpanId),
					ParentID:   hex.EncodeToString(s.ParentSpanId),
					Attributes: texts(s.Attributes), Resource: resource, Service: resource["service.name"],
					Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)),
				})
			}
		}
	}
}

func texts(list []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		default:
			m[kv.Key] = kv.Value.String()
		}
	}
	return m
}

// Spans returns what has arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Tokens returns the header x-token of what has arrived.
func (c *Collector) Tokens() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tokens)
}

// Batches returns how many requests have arrived.
func (c *Collector) Batches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batches
}

// Await returns the first span that match accepts, once it has arrived.
func (c *Collector) Await(match func(Span) bool) Span {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if i := slices.IndexFunc(c.Spans(), match); i >= 0 {
			return c.Spans()[i]
		}
	}
	c.t.Fatalf("the span does not arrive; there are %+v", c.Spans())
	return Span{}
}
