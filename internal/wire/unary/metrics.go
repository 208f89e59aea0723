package unary

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// CodeNames are the names of gRPC's codes, as metrics have them.
var CodeNames = [numCodes]string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound",
	"AlreadyExists",
	"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
	"Unavailable", "DataLoss", "Unauthenticated"}

// Rows of the metrics that every transport reports.
var (
	// Answers counts every answer of every transport, also one that is given before a handler runs.
	Answers = metrics.Row{Name: "headgate_requests_total", Kind: metrics.IsCounter,
		Labels: metrics.Open("transport", "code"),
		Help: "Every answer by transport (unary, grpc, services, json) and code (gRPC's; HTTP's for json), " +
			"also to calls that reach no handler: " +
			"an unknown method, a message that is too large, too many bytes in memory."}
	// Connections are those that are open.
	Connections = metrics.Row{Name: "headgate_connections", Kind: metrics.IsGauge, Labels: metrics.Open("transport"),
		Help: "Connections that are open."}
	// Accepted counts connections.
	Accepted = metrics.Row{Name: "headgate_connections_accepted_total", Kind: metrics.IsCounter,
		Labels: metrics.Open("transport"), Help: "Connections that were accepted."}
	// Refused counts connections for which there is no room.
	Refused = metrics.Row{Name: "headgate_connections_refused_total", Kind: metrics.IsCounter,
		Labels: metrics.Open("transport"), Help: "Connections closed at once because as many are open as may be " +
			"(unary 16,384, all others 4,096, less if memory is small), and all of them are in use."}
	// Displaced counts connections that had to go.
	Displaced = metrics.Row{Name: "headgate_connections_displaced_total", Kind: metrics.IsCounter,
		Labels: metrics.Open("transport"), Help: "Connections closed because others needed their place, or the " +
			"memory that they kept."}
	// Timeouts counts what clients were too slow for.
	Timeouts = metrics.Row{Name: "headgate_transport_timeouts_total", Kind: metrics.IsCounter,
		Labels: metrics.Open("transport"), Help: "Connections and calls ended because the client was too slow."}
)

// Rows returns the metrics of a server under the name of a transport. A nil server has the same table.
func (s *Server) Rows(transport string) []metrics.Row {
	rows := []metrics.Row{Answers}
	rows[0].Each = func(emit metrics.Emit) {
		for code, n := range s.Stats().Codes {
			emit([]string{transport, CodeNames[code]}, float64(n), nil)
		}
	}
	add := func(row metrics.Row, value func(*Stats) float64) {
		row.Labels = metrics.Open("transport")
		row.Each = func(emit metrics.Emit) {
			stats := s.Stats()
			emit([]string{transport}, value(&stats), nil)
		}
		rows = append(rows, row)
	}
	counter := func(name, help string, value func(*Stats) uint64) {
		add(metrics.Row{Name: name, Help: help, Kind: metrics.IsCounter}, func(s *Stats) float64 { return float64(value(s)) })
	}
	add(Connections, func(s *Stats) float64 { return float64(s.Connections) })
	add(Accepted, func(s *Stats) float64 { return float64(s.Accepted) })
	add(Refused, func(s *Stats) float64 { return float64(s.Refused) })
	add(Displaced, func(s *Stats) float64 { return float64(s.Displaced) })
	counter("headgate_streams_refused_total",
		"Calls refused because 1,024 are in flight on their connection, or because memory is short.",
		func(s *Stats) uint64 { return s.RefusedStreams })
	counter("headgate_calls_shed_total", "Calls answered by policy because too many wait for the backend.",
		func(s *Stats) uint64 { return s.Shed })
	counter("headgate_calls_cancelled_total", "Calls that the client cancelled.",
		func(s *Stats) uint64 { return s.Cancelled })
	counter("headgate_protocol_errors_total", "Connections ended because of an error or a flood of the client's.",
		func(s *Stats) uint64 { return s.ProtocolErrors })
	counter("headgate_floods_total", "Connections ended because the client sent too many useless frames.",
		func(s *Stats) uint64 { return s.Floods })
	counter("headgate_connections_foreign_total",
		"Connections ended because the client does not speak HTTP/2: it speaks HTTP/1.1, or TLS where the port has none.",
		func(s *Stats) uint64 { return s.Foreign })
	add(Timeouts, func(s *Stats) float64 { return float64(s.Timeouts) })
	return rows
}
