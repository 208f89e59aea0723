package slots

import (
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Metrics count what a Scheduler does.
type Metrics struct {
	requests                  metrics.Histograms
	windows, events, searches metrics.Histograms
	delays                    metrics.Histograms
	contended                 metrics.Counter
	retries, runs, changed    metrics.Counters
	rows                      []metrics.Row
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	m := new(Metrics)
	var outcomes []string
	for _, o := range Outcomes() {
		outcomes = append(outcomes, string(o))
	}
	works := metrics.Closed("work", WorkRetention, WorkProvision, WorkGeneration)
	m.rows = []metrics.Row{
		m.requests.Row("headgate_slots_request_duration_seconds", "Time to answer a request for a slot.", metrics.Latency,
			metrics.Closed("outcome", outcomes...)),
		m.delays.Row("headgate_slots_delay_seconds", "How much later than asked for new slots are, by config.",
			[]float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}, metrics.Open("config")),
		m.windows.Row("headgate_slots_search_windows", "Windows that a search in the database tried.",
			[]float64{0, 1, 2, 3, 5, 10, 30, 100, 300, 1000}, nil),
		m.events.Row("headgate_slots_search_events", "Events that shared a search in the database.",
			[]float64{1, 2, 4, 8, 16, 32, 64, 128, 256}, nil),
		m.searches.Row("headgate_slots_search_duration_seconds", "Time of a search in the database.", metrics.Latency, nil),
		m.contended.Row("headgate_slots_contended_windows_total",
			"Windows that another transaction held for more than a second, or filled meanwhile."),
		m.retries.Row("headgate_slots_retries_total", "Searches repeated after an error, by its kind.",
			metrics.Closed("kind", Passing.String(), Duplicate.String(), Held.String())),
		m.runs.Row("headgate_slots_background_runs_total",
			"Runs of background work on slots. The work generation reports errors only.", works.Closed("result", "ok", "error")),
		m.changed.Row("headgate_slots_background_rows_total", "Rows that background work on slots made or dropped.", works),
	}
	return m
}

// Rows returns the table of the metrics.
func (m *Metrics) Rows() []metrics.Row { return m.rows }

// assigned: a request ended with this outcome.
func (m *Metrics) assigned(o Outcome, took time.Duration) { m.requests.Of(string(o)).Took(took, 1) }

// maxDelayConfigs bounds the configs that have a histogram of their own; the others share one.
const maxDelayConfigs = 200

// delayed: an event got a slot by the config, so much later than it asked for.
func (m *Metrics) delayed(config string, delay time.Duration) {
	m.delays.OfAtMost(maxDelayConfigs, "(other)", config).Took(delay, 1)
}

// searched counts a search: the events that shared it, the windows that it tried, and those of them that others had
// locked.
func (m *Metrics) searched(events, windows, contended int, took time.Duration) {
	m.events.Of().Observe(float64(events), 1)
	m.windows.Of().Observe(float64(windows), 1)
	m.searches.Of().Took(took, 1)
	m.contended.Add(int64(contended))
}

// retried: a search is done again after an error of this kind.
func (m *Metrics) retried(kind Kind) { m.retries.Of(kind.String()).Inc() }

// background work ended.
func (m *Metrics) background(work string, rows int64, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.runs.Of(work, result).Inc()
	m.changed.Of(work).Add(rows)
}

// PoolRows returns the metrics of a pool of connections, whose figures read returns.
func PoolRows(read func() PoolStats) []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_slots_pool_connections", "Connections to the database of slots.",
			func() int { return read().Open }),
		metrics.GaugeOf("headgate_slots_pool_busy_connections", "Connections to the database of slots that are in use.",
			func() int { return read().InUse }),
		metrics.GaugeOf("headgate_slots_pool_max_connections", "Most connections to the database of slots.",
			func() int { return read().Max }),
		metrics.CounterOf("headgate_slots_pool_waits_total", "Waits for a connection to the database of slots.",
			func() int64 { return read().Waits }),
		metrics.CounterOf("headgate_slots_pool_wait_seconds_total",
			"Time spent waiting for a connection to the database of slots.", func() float64 { return read().Waited.Seconds() }),
	}
}
