package telemetry

// TraceStats are figures about spans.
type TraceStats struct{ Ended, Sent, Failed int64 }

// AddTracing publishes what is known of spans, which read returns.
func (m *Metrics) AddTracing(read func() TraceStats) { register(m.registry, traceRows(read), nil) }

func traceRows(read func() TraceStats) []row {
	stat := func(name, help string, f func(TraceStats) int64) row {
		return figure(isCounter, func() float64 { return float64(f(read())) }, metric{name: name, help: help})
	}
	return []row{
		stat("headgate_trace_spans_total", "Spans that were made. Those that were neither sent nor failed wait, or were dropped because too many waited.",
			func(s TraceStats) int64 { return s.Ended }),
		stat("headgate_trace_sent_spans_total", "Spans that the collector took.", func(s TraceStats) int64 { return s.Sent }),
		stat("headgate_trace_failed_spans_total", "Spans that could not be sent to the collector.", func(s TraceStats) int64 { return s.Failed }),
	}
}
