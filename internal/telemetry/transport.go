package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/ratelimit/unary"
)

// Every answer of every transport is counted, also one that is given before a
// handler runs, and so is what a transport refuses without an answer.

const requestsHelp = "Answers, by transport and code: gRPC's, or HTTP's for json."

// newRequests makes the counter of a transport's answers.
func newRequests(transport string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_requests_total", Help: requestsHelp, ConstLabels: prometheus.Labels{"transport": transport},
	}, []string{"code"})
}

// codeLabel is a gRPC code as the label has it.
func codeLabel(c codes.Code) string {
	if c > codes.Unauthenticated {
		c = codes.Unknown
	}
	return c.String()
}

// A transportFigure is a figure that package unary keeps.
type transportFigure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*unary.Stats) float64
}

// unaryStats publishes what a server of package unary counts.
type unaryStats struct {
	stats    func() unary.Stats
	requests *prometheus.Desc
	figures  []transportFigure
}

// AddUnary publishes the counts of a server of package unary.
func (m *Metrics) AddUnary(read func() unary.Stats) {
	labels := prometheus.Labels{"transport": "unary"}
	u := &unaryStats{stats: read, requests: prometheus.NewDesc("headgate_requests_total", requestsHelp, []string{"code"}, labels)}
	add := func(kind prometheus.ValueType, name, help string, value func(*unary.Stats) float64) {
		u.figures = append(u.figures, transportFigure{prometheus.NewDesc(name, help, nil, labels), kind, value})
	}
	counter := func(name, help string, value func(*unary.Stats) uint64) {
		add(prometheus.CounterValue, name, help, func(s *unary.Stats) float64 { return float64(value(s)) })
	}
	add(prometheus.GaugeValue, "headgate_connections", connectionsHelp, func(s *unary.Stats) float64 { return float64(s.Connections) })
	add(prometheus.GaugeValue, "headgate_buffered_bytes", "Bytes that connections keep in memory: open calls, requests, answers that wait.",
		func(s *unary.Stats) float64 { return float64(s.Memory) })
	counter("headgate_connections_accepted_total", acceptedHelp, func(s *unary.Stats) uint64 { return s.Accepted })
	counter("headgate_connections_refused_total", "Connections closed at once because too many are open.", func(s *unary.Stats) uint64 { return s.Refused })
	counter("headgate_streams_refused_total", "Calls refused because too many are in flight on their connection, or memory is short.",
		func(s *unary.Stats) uint64 { return s.RefusedStreams })
	counter("headgate_calls_shed_total", "Calls answered without the backend because too many wait for it.", func(s *unary.Stats) uint64 { return s.Shed })
	counter("headgate_calls_cancelled_total", "Calls that the client gave up.", func(s *unary.Stats) uint64 { return s.Cancelled })
	counter("headgate_protocol_errors_total", "Connections ended because of an error or a flood of the client's.", func(s *unary.Stats) uint64 { return s.ProtocolErrors })
	counter("headgate_floods_total", "Connections ended because of too many frames that lead to nothing.", func(s *unary.Stats) uint64 { return s.Floods })
	counter("headgate_transport_timeouts_total", "Connections and calls ended because the client was too slow.", func(s *unary.Stats) uint64 { return s.Timeouts })
	m.registry.MustRegister(u)
}

const (
	connectionsHelp = "Connections that are open."
	acceptedHelp    = "Connections that were accepted."
)

// Describe implements prometheus.Collector.
func (u *unaryStats) Describe(ch chan<- *prometheus.Desc) {
	ch <- u.requests
	for _, f := range u.figures {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (u *unaryStats) Collect(ch chan<- prometheus.Metric) {
	s := u.stats()
	for code, n := range s.Codes {
		ch <- prometheus.MustNewConstMetric(u.requests, prometheus.CounterValue, float64(n), codeLabel(codes.Code(code)))
	}
	for _, f := range u.figures {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(&s))
	}
}

// grpcStats counts what a server of grpc-go answers.
type grpcStats struct {
	requests [codes.Unauthenticated + 1]prometheus.Counter
	accepted prometheus.Counter
	open     atomic.Int64
}

// GRPCStats returns what counts the answers and connections of a server of
// grpc-go.
func (m *Metrics) GRPCStats(transport string) stats.Handler {
	labels := prometheus.Labels{"transport": transport}
	requests := newRequests(transport)
	g := &grpcStats{accepted: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "headgate_connections_accepted_total", Help: acceptedHelp, ConstLabels: labels})}
	for c := range g.requests {
		g.requests[c] = requests.WithLabelValues(codeLabel(codes.Code(c)))
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "headgate_connections", Help: connectionsHelp, ConstLabels: labels},
		func() float64 { return float64(g.open.Load()) })
	m.registry.MustRegister(requests, g.accepted, open)
	return g
}

// TagRPC implements stats.Handler.
func (*grpcStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (*grpcStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (g *grpcStats) HandleRPC(_ context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok {
		g.requests[min(status.Code(end.Error), codes.Unauthenticated)].Inc()
	}
}

// HandleConn implements stats.Handler.
func (g *grpcStats) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		g.accepted.Inc()
		g.open.Add(1)
	case *stats.ConnEnd:
		g.open.Add(-1)
	}
}

// CountHTTP counts the answers of a handler under transport.
func (m *Metrics) CountHTTP(transport string, h http.Handler) http.Handler {
	requests := newRequests(transport)
	m.registry.MustRegister(requests)
	for _, code := range []int{200, 400, 413, 429, 503} {
		requests.WithLabelValues(strconv.Itoa(code))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &codeWriter{ResponseWriter: w, code: http.StatusOK}
		defer func() { requests.WithLabelValues(strconv.Itoa(c.code)).Inc() }()
		h.ServeHTTP(c, r)
	})
}

// A codeWriter notes the status of an answer.
type codeWriter struct {
	http.ResponseWriter
	code  int
	wrote bool
}

func (c *codeWriter) WriteHeader(code int) {
	if !c.wrote && code >= 200 {
		c.code, c.wrote = code, true
	}
	c.ResponseWriter.WriteHeader(code)
}

func (c *codeWriter) Write(p []byte) (int, error) {
	c.wrote = true
	return c.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (c *codeWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
