package accesslog

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	datapb "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/ratelimit/leases"
	"github.com/headgate-rls/headgate/test/testenv"
)

const rateLimit = "envoy.filters.http.ratelimit"

// A recorder records its calls. With a gate each call waits until something
// can be received from it, or the call's time is over.
type recorder struct {
	mu      sync.Mutex
	calls   []string // "renew a b"
	watched map[leases.OwnerID]int
	gate    chan struct{}
	late    int // calls whose time was over
}

func newRecorder() *recorder { return &recorder{watched: map[leases.OwnerID]int{}} }

func (l *recorder) Apply(ctx context.Context, domain string, a leases.Action,
	tokens []string) (owners []leases.OwnerID) {
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	late := 0
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			late = 1
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late += late
	call := string(a) + " " + strings.Join(tokens, " ")
	if domain == "" || ctx.Err() != nil && late == 0 {
		call = "bad call: " + call
	}
	l.calls = append(l.calls, call)
	for _, token := range tokens {
		if name, _, ok := strings.Cut(token, "/"); ok {
			owners = append(owners, idOf(name))
		}
	}
	return owners
}

func (l *recorder) Watch(owner leases.OwnerID) func() {
	by := func(n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watched[owner] += n
	}
	by(1)
	return func() { by(-1) }
}

// got returns the calls so far.
func (l *recorder) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// logs returns how many access logs are open that stand for an owner.
func (l *recorder) logs(owner string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched[idOf(owner)]
}

// A token "NAME/…" is a lease of NAME's.
func idOf(name string) (id leases.OwnerID) {
	copy(id[:], name)
	return id
}

// counts counts events.
type counts struct {
	mu sync.Mutex
	n  [leases.NumLogEvents]int
}

func (c *counts) count(e leases.LogEvent, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[e] += n
}

func (c *counts) get(e leases.LogEvent) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[e]
}

// A harness is a server and a client of it.
type harness struct {
	testing.TB
	leases *recorder
	counts counts
	log    testenv.Log
	conn   *grpc.ClientConn
	client als.AccessLogServiceClient
}

// setup serves s, or h.leases without it.
func setup(t testing.TB, s Leases, conf Config, opts ...grpc.ServerOption) *harness {
	t.Helper()
	h := &harness{TB: t, leases: newRecorder()}
	if s == nil {
		s = h.leases
	}
	conf.Log, conf.Count = slog.New(slog.NewTextHandler(&h.log, nil)), h.counts.count
	if conf.EndDelay == 0 {
		conf.EndDelay = time.Nanosecond
	}
	if conf.Timeout == 0 {
		conf.Timeout = time.Minute // a busy machine is not a failure
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// As cmd/headgate serves it.
	srv := grpc.NewServer(append(opts, transport.ServerCodec())...)
	Register(srv, s, conf)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	h.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.conn.Close()
		srv.Stop()
		wg.Wait()
	})
	h.client = als.NewAccessLogServiceClient(h.conn)
	return h
}

type stream = grpc.ClientStreamingClient[als.StreamAccessLogsMessage, als.StreamAccessLogsResponse]

// open opens a stream whose metadata has the given pairs.
func (h *harness) open(md ...string) stream {
	h.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), md...))
	h.Cleanup(cancel)
	s, err := h.client.StreamAccessLogs(ctx)
	if err != nil {
		h.Fatal(err)
	}
	return s
}

func (h *harness) send(s stream, list ...*als.StreamAccessLogsMessage) {
	h.Helper()
	for _, m := range list {
		if err := s.Send(m); err != nil {
			_, why := s.CloseAndRecv()
			h.Fatal(errors.Join(err, why))
		}
	}
}

// finish ends a stream as a client does, after which all is done that it said.
func (h *harness) finish(s stream) {
	h.Helper()
	if _, err := s.CloseAndRecv(); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) wantCalls(want ...string) {
	h.Helper()
	if got := h.leases.got(); !slices.Equal(got, want) {
		h.Errorf("calls %q, want %q", got, want)
	}
}

func (h *harness) eventually(what string, ok func() bool) {
	h.Helper()
	for until := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			h.Fatalf("not within 30 s: %s", what)
		}
	}
}

func message(list ...*datapb.HTTPAccessLogEntry) *als.StreamAccessLogsMessage {
	return &als.StreamAccessLogsMessage{LogEntries: &als.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &als.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: list}}}
}

// from is a stream's first message.
func from(node string, m *als.StreamAccessLogsMessage) *als.StreamAccessLogsMessage {
	m.Identifier = &als.StreamAccessLogsMessage_Identifier{Node: &corepb.Node{Id: node, Cluster: "c"}, LogName: "headgate"}
	return m
}

const (
	periodic = datapb.AccessLogType_DownstreamPeriodic
	end      = datapb.AccessLogType_DownstreamEnd
)

// entry is as Envoy writes it, with a value for "lease" that may be nil.
func entry(kind datapb.AccessLogType, token any) *datapb.HTTPAccessLogEntry {
	fields := map[string]any{"rule": "d/tenant"}
	if token != nil {
		fields["lease"] = token
	}
	return entryWith(kind, map[string]map[string]any{rateLimit: fields, "other": {"lease": "not ours"}})
}

func entryWith(kind datapb.AccessLogType, namespaces map[string]map[string]any) *datapb.HTTPAccessLogEntry {
	md := &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	for name, fields := range namespaces {
		s, err := structpb.NewStruct(fields)
		if err != nil {
			panic(err)
		}
		md.FilterMetadata[name] = s
	}
	return &datapb.HTTPAccessLogEntry{
		CommonProperties: &datapb.AccessLogCommon{
			SampleRate: 1, UpstreamCluster: "backend", StreamId: "4711", RouteName: "r", Metadata: md, AccessLogType: kind,
			//lint:ignore SA1019 Envoy still sends it
			IntermediateLogEntry: kind == periodic, CustomTags: map[string]string{"a": "b"},
		},
		Request:  &datapb.HTTPRequestProperties{Path: "/", Authority: "localhost", UserAgent: strings.Repeat("u", 80)},
		Response: &datapb.HTTPResponseProperties{ResponseHeadersBytes: 300},
	}
}
