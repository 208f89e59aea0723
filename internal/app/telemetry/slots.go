package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/slots"
)

// slotRecorder is a [slots.Observer].
type slotRecorder struct {
	requests  *prometheus.HistogramVec
	windows   prometheus.Histogram
	events    prometheus.Histogram
	searches  prometheus.Histogram
	contended prometheus.Counter
	retries   *prometheus.CounterVec
	runs      *prometheus.CounterVec
	rowsDone  *prometheus.CounterVec

	byOutcome map[slots.Outcome]prometheus.Observer
}

func (r *slotRecorder) rows() []row {
	var outcomes []string
	for _, o := range slots.Outcomes() {
		outcomes = append(outcomes, string(o))
	}
	works := []string{slots.WorkRetention, slots.WorkProvision, slots.WorkGeneration}
	retried := []string{slots.Passing.String(), slots.Duplicate.String(), slots.Held.String()}
	return []row{
		histograms(&r.requests, latency, metric{name: "headgate_slots_request_duration_seconds", labels: closed(nil, "outcome", outcomes...),
			help: "Time to answer a request for a slot."}),
		histogram(&r.windows, []float64{0, 1, 2, 3, 5, 10, 30, 100, 300, 1000}, metric{name: "headgate_slots_search_windows",
			help: "Windows that a search in the database tried."}),
		histogram(&r.events, []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}, metric{name: "headgate_slots_search_events",
			help: "Events that shared a search in the database."}),
		histogram(&r.searches, latency, metric{name: "headgate_slots_search_duration_seconds", help: "Time of a search in the database."}),
		counter(&r.contended, metric{name: "headgate_slots_contended_windows_total",
			help: "Windows that another transaction held for more than a second, or filled meanwhile."}),
		counters(&r.retries, metric{name: "headgate_slots_retries_total", labels: closed(nil, "kind", retried...),
			help: "Searches repeated after an error, by its kind."}),
		counters(&r.runs, metric{name: "headgate_slots_background_runs_total", labels: closed(closed(nil, "work", works...), "result", "ok", "error"),
			help: "Runs of background work on slots. The work generation reports errors only."}),
		counters(&r.rowsDone, metric{name: "headgate_slots_background_rows_total", labels: closed(nil, "work", works...),
			help: "Rows that background work on slots made or dropped."}),
	}
}

// Slots registers the metrics of slot scheduling and returns what records them.
func (m *Metrics) Slots() slots.Observer {
	r := &slotRecorder{byOutcome: make(map[slots.Outcome]prometheus.Observer)}
	register(m.registry, r.rows(), nil)
	for _, o := range slots.Outcomes() {
		r.byOutcome[o] = r.requests.WithLabelValues(string(o))
	}
	return r
}

func (r *slotRecorder) Assigned(o slots.Outcome, took time.Duration) {
	r.byOutcome[o].Observe(took.Seconds())
}

func (r *slotRecorder) Searched(events, windows, contended int, took time.Duration) {
	r.events.Observe(float64(events))
	r.windows.Observe(float64(windows))
	r.searches.Observe(took.Seconds())
	r.contended.Add(float64(contended))
}

func (r *slotRecorder) Retried(kind slots.Kind) { r.retries.WithLabelValues(kind.String()).Inc() }

func (r *slotRecorder) Background(work string, rows int64, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	r.runs.WithLabelValues(work, result).Inc()
	r.rowsDone.WithLabelValues(work).Add(float64(rows))
}

// AddSlotPool publishes the figures of a pool of connections to the database of
// slots, which read returns.
func (m *Metrics) AddSlotPool(read func() slots.PoolStats) {
	register(m.registry, slotPoolRows(read), nil)
}

func slotPoolRows(read func() slots.PoolStats) []row {
	stat := func(k kind, name, help string, f func(slots.PoolStats) float64) row {
		return figure(k, func() float64 { return f(read()) }, metric{name: name, help: help})
	}
	return []row{
		stat(isGauge, "headgate_slots_pool_connections", "Connections to the database of slots.", func(s slots.PoolStats) float64 { return float64(s.Open) }),
		stat(isGauge, "headgate_slots_pool_busy_connections", "Connections to the database of slots that are in use.", func(s slots.PoolStats) float64 { return float64(s.InUse) }),
		stat(isGauge, "headgate_slots_pool_max_connections", "Most connections to the database of slots.", func(s slots.PoolStats) float64 { return float64(s.Max) }),
		stat(isCounter, "headgate_slots_pool_waits_total", "Waits for a connection to the database of slots.", func(s slots.PoolStats) float64 { return float64(s.Waits) }),
		stat(isCounter, "headgate_slots_pool_wait_seconds_total", "Time spent waiting for a connection to the database of slots.", func(s slots.PoolStats) float64 { return s.Waited.Seconds() }),
	}
}
