package capture

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the table of the metrics.
func (h *Hub) Rows() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_capture_streams", "Captures of requests that are being written, into a file or to a "+
			"client.",
			func() int { return len(h.list()) }),
		metrics.CounterOf("headgate_capture_lines_total", "Requests that were captured.",
			func() int64 { n, _ := h.counts(); return n }),
		metrics.CounterOf("headgate_capture_dropped_total",
			"Requests that were not captured because the file or the client was too slow.",
			func() int64 { _, n := h.counts(); return n }),
		h.failed.Row("headgate_capture_failures_total", "Captures that stopped because their file could not be written."),
		metrics.GaugeOf("headgate_capture_stopped", "1 while nothing is captured because the file of --capture cannot be "+
			"written, else 0. It is tried again every 10 seconds.",
			func() int { return metrics.Truth(h.Problem() != "") }),
	}
}
