package observe

import (
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Metrics are what backends are asked, how long that takes and how it fails.
type Metrics struct {
	calls            metrics.Histograms
	requests, errors metrics.Counters
	rows             []metrics.Row
}

// NewMetrics returns metrics that know of no backend yet.
func NewMetrics() *Metrics {
	m := new(Metrics)
	call := metrics.Open("backend").Closed("call", append([]string{"take"}, metrics.Texts(Op(0), NumOps)...)...)
	m.rows = []metrics.Row{
		m.calls.Row("headgate_backend_call_duration_seconds", "Time of a call to the backend.", metrics.Latency, call),
		m.requests.Row("headgate_backend_requests_total", "Requests in calls to the backend.", metrics.Open("backend")),
		m.errors.Row("headgate_backend_errors_total", "Requests and calls that failed in the backend, by class of error.",
			call.Closed("class", metrics.Texts(None+1, NumClasses)...)),
	}
	return m
}

// Rows returns the table of the metrics.
func (m *Metrics) Rows() []metrics.Row { return m.rows }

// series are those of one backend.
type series struct {
	requests *metrics.Counter
	take     *metrics.Histogram
	failed   *metrics.Series
	calls    [NumOps]*metrics.Histogram
	errors   [NumOps]*metrics.Series
}

// Recorder returns what records calls to the backend of that name.
func (m *Metrics) Recorder(backend string) Recorder {
	s := &series{requests: m.requests.Of(backend), take: m.calls.Of(backend, "take"),
		failed: m.errors.Hold(backend, "take")}
	for op := range Op(NumOps) {
		s.calls[op], s.errors[op] = m.calls.Of(backend, op.String()), m.errors.Hold(backend, op.String())
	}
	return s
}

// Take implements [Recorder].
func (s *series) Take(requests int, d time.Duration, failed [NumClasses]int) {
	s.requests.Add(int64(requests))
	s.take.Took(d, 1)
	for class, n := range failed {
		if n > 0 {
			s.failed.At(class - 1).Add(int64(n))
		}
	}
}

// Call implements [Recorder].
func (s *series) Call(op Op, d time.Duration, class Class) {
	s.calls[op].Took(d, 1)
	if class != None {
		s.errors[op].At(int(class) - 1).Inc()
	}
}
