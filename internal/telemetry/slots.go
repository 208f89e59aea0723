package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/slots"
)

// slotRecorder is a [slots.Observer] with its series looked up once.
type slotRecorder struct {
	requests  map[slots.Outcome]prometheus.Observer
	windows   prometheus.Histogram
	events    prometheus.Histogram
	searches  prometheus.Histogram
	contended prometheus.Counter
	retries   *prometheus.CounterVec
	runs      *prometheus.CounterVec
	rows      *prometheus.CounterVec
}

// Slots registers the metrics of slot scheduling and returns what records them.
func (m *Metrics) Slots() slots.Observer {
	requests := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "headgate_slots_request_duration_seconds", Help: "Time to answer a request for a slot, by outcome.", Buckets: latency,
	}, []string{"outcome"})
	r := &slotRecorder{
		requests: make(map[slots.Outcome]prometheus.Observer),
		windows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "headgate_slots_search_windows", Help: "Windows that a search for slots tried.", Buckets: []float64{0, 1, 2, 3, 5, 10, 30, 100, 300, 1000},
		}),
		events: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "headgate_slots_search_events", Help: "Events that shared a search for slots.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		searches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "headgate_slots_search_duration_seconds", Help: "Time of a search for slots in the database.", Buckets: latency,
		}),
		contended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_slots_contended_windows_total", Help: "Windows that a search found held by another for too long, or filled meanwhile.",
		}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_slots_retries_total", Help: "Searches done again after an error, by its kind.",
		}, []string{"kind"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_slots_background_runs_total", Help: "Background work on slots, by its result (ok or error).",
		}, []string{"work", "result"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_slots_background_rows_total", Help: "Rows that background work on slots made or dropped.",
		}, []string{"work"}),
	}
	for _, o := range slots.Outcomes() {
		r.requests[o] = requests.WithLabelValues(string(o))
	}
	m.registry.MustRegister(requests, r.windows, r.events, r.searches, r.contended, r.retries, r.runs, r.rows)
	return r
}

func (r *slotRecorder) Assigned(o slots.Outcome, took time.Duration) {
	r.requests[o].Observe(took.Seconds())
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
	r.rows.WithLabelValues(work).Add(float64(rows))
}

// SlotPool returns figures of a pool of connections to the database of slots.
func SlotPool(stats func() slots.PoolStats) []Stat {
	stat := func(name, help string, counter bool, f func(slots.PoolStats) float64) Stat {
		return Stat{Name: name, Help: help, Counter: counter, Value: func() float64 { return f(stats()) }}
	}
	return []Stat{
		stat("headgate_slots_pool_connections", "Connections to the database of slots.", false, func(s slots.PoolStats) float64 { return float64(s.Open) }),
		stat("headgate_slots_pool_busy_connections", "Connections to the database of slots that are in use.", false, func(s slots.PoolStats) float64 { return float64(s.InUse) }),
		stat("headgate_slots_pool_max_connections", "Most connections to the database of slots.", false, func(s slots.PoolStats) float64 { return float64(s.Max) }),
		stat("headgate_slots_pool_waits_total", "Waits for a connection to the database of slots.", true, func(s slots.PoolStats) float64 { return float64(s.Waits) }),
		stat("headgate_slots_pool_wait_seconds_total", "Time spent waiting for them.", true, func(s slots.PoolStats) float64 { return s.Waited.Seconds() }),
	}
}
