package breaker

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Figures returns the metrics of the breaker.
func (b *Backend) Figures() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_breaker_open",
			"1 while the circuit breaker is open because the backend failed, 0.5 while it probes the backend.", func() float64 {
				return map[State]float64{Open: 1, HalfOpen: 0.5}[b.State()]
			}),
		metrics.GaugeOf("headgate_backend_slow", "1 while the backend answers, but more than 1 % of the calls get no answer "+
			"before their callers' deadlines.", func() int { return metrics.Truth(b.Slow() != "") }),
		metrics.CounterOf("headgate_breaker_openings_total", "How often the breaker opened.",
			func() uint64 { return b.circuit.Counts().Opened }),
		metrics.CounterOf("headgate_breaker_refusals_total",
			"Calls not made because the breaker was open or too many calls were under way.",
			func() uint64 { return b.refused.Load() + b.overloaded.Load() }),
	}
}
