package telemetry

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/internal/wire/unary"
)

// Every answer of every transport is counted, also one that is given before a
// handler runs, and so is what a transport refuses without an answer.

// Transports have these metrics in common.
var (
	answers = metric{name: "headgate_requests_total", labels: open("transport", "code"),
		help: "Every answer by transport (unary, grpc, services, json) and code (gRPC's; HTTP's for json), also to calls that reach no handler: " +
			"an unknown method, a message that is too large, too many bytes in memory."}
	openConnections = metric{name: "headgate_connections", labels: open("transport"), help: "gRPC connections that are open."}
	accepted        = metric{name: "headgate_connections_accepted_total", labels: open("transport"), help: "gRPC connections that were accepted."}
)

func on(transport string) prometheus.Labels { return prometheus.Labels{"transport": transport} }

// codeLabels are the names of gRPC's codes, as the label has them.
var codeLabels = [...]string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
	"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
	"Unavailable", "DataLoss", "Unauthenticated"}

// unaryStats publishes what a server of package unary counts.
type unaryStats struct {
	read    func() unary.Stats
	answers *prometheus.Desc
	figures []*transportFigure
}

// A transportFigure is a figure that package unary keeps.
type transportFigure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*unary.Stats) float64
}

func (u *unaryStats) rows() []row {
	rows := []row{described(&u.answers, isCounter, answers)}
	gauge := func(value func(*unary.Stats) float64, m metric) {
		f := &transportFigure{kind: prometheus.GaugeValue, value: value}
		u.figures = append(u.figures, f)
		rows = append(rows, described(&f.desc, isGauge, m))
	}
	counter := func(value func(*unary.Stats) uint64, m metric) {
		f := &transportFigure{kind: prometheus.CounterValue, value: func(s *unary.Stats) float64 { return float64(value(s)) }}
		u.figures = append(u.figures, f)
		rows = append(rows, described(&f.desc, isCounter, m))
	}
	transport := open("transport")
	gauge(func(s *unary.Stats) float64 { return float64(s.Connections) }, openConnections)
	counter(func(s *unary.Stats) uint64 { return s.Accepted }, accepted)
	counter(func(s *unary.Stats) uint64 { return s.Refused }, metric{name: "headgate_connections_refused_total", labels: transport,
		help: "Connections closed at once because 16,384 are open."})
	gauge(func(s *unary.Stats) float64 { return float64(s.Memory) }, metric{name: "headgate_buffered_bytes", labels: transport,
		help: "Memory of connections: open calls, requests and answers that wait. At most 256 MiB; above half of that each connection has a fair share."})
	counter(func(s *unary.Stats) uint64 { return s.RefusedStreams }, metric{name: "headgate_streams_refused_total", labels: transport,
		help: "Calls refused because 1,024 are in flight on their connection, or because memory is short."})
	counter(func(s *unary.Stats) uint64 { return s.Shed }, metric{name: "headgate_calls_shed_total", labels: transport,
		help: "Calls answered by policy because too many wait for the backend."})
	counter(func(s *unary.Stats) uint64 { return s.Cancelled }, metric{name: "headgate_calls_cancelled_total", labels: transport,
		help: "Calls that the client cancelled."})
	counter(func(s *unary.Stats) uint64 { return s.ProtocolErrors }, metric{name: "headgate_protocol_errors_total", labels: transport,
		help: "Connections ended because of an error or a flood of the client's."})
	counter(func(s *unary.Stats) uint64 { return s.Floods }, metric{name: "headgate_floods_total", labels: transport,
		help: "Connections ended because the client sent too many useless frames."})
	counter(func(s *unary.Stats) uint64 { return s.Timeouts }, metric{name: "headgate_transport_timeouts_total", labels: transport,
		help: "Connections and calls ended because the client was too slow."})
	return rows
}

// AddUnary publishes the counts of a server of package unary, which read returns.
func (m *Metrics) AddUnary(read func() unary.Stats) {
	u := &unaryStats{read: read}
	register(m.registry, u.rows(), on("unary"))
	m.registry.MustRegister(u)
}

// Describe implements prometheus.Collector.
func (u *unaryStats) Describe(ch chan<- *prometheus.Desc) {
	ch <- u.answers
	for _, f := range u.figures {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (u *unaryStats) Collect(ch chan<- prometheus.Metric) {
	s := u.read()
	for code, n := range s.Codes {
		ch <- prometheus.MustNewConstMetric(u.answers, prometheus.CounterValue, float64(n), codeLabels[code])
	}
	for _, f := range u.figures {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(&s))
	}
}

// A GRPCServer counts what a server of grpc-go answers.
type GRPCServer struct {
	answers  *prometheus.CounterVec
	byCode   [len(codeLabels)]prometheus.Counter
	accepted prometheus.Counter
	open     atomic.Int64
}

func (g *GRPCServer) rows() []row {
	return []row{
		counters(&g.answers, answers),
		counter(&g.accepted, accepted),
		figure(isGauge, func() float64 { return float64(g.open.Load()) }, openConnections),
	}
}

// GRPCServer returns what counts the answers and connections of a server of grpc-go.
func (m *Metrics) GRPCServer(transport string) *GRPCServer {
	g := new(GRPCServer)
	register(m.registry, g.rows(), on(transport))
	for c := range g.byCode {
		g.byCode[c] = g.answers.WithLabelValues(codeLabels[c])
	}
	return g
}

// Answered counts an answer with a gRPC code.
func (g *GRPCServer) Answered(code uint32) { g.byCode[min(code, uint32(len(codeLabels)-1))].Inc() }

// Opened counts a connection that was accepted.
func (g *GRPCServer) Opened() {
	g.accepted.Inc()
	g.open.Add(1)
}

// Closed counts a connection that has ended.
func (g *GRPCServer) Closed() { g.open.Add(-1) }

// CountHTTP counts the answers of a handler under transport.
func (m *Metrics) CountHTTP(transport string, h http.Handler) http.Handler {
	var requests *prometheus.CounterVec
	register(m.registry, []row{counters(&requests, answers)}, on(transport))
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
