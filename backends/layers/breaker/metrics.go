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
			func() uint64 { return b.Stats().Opened }),
		metrics.CounterOf("headgate_breaker_refusals_total",
			"Calls not made because the breaker was open or too many calls were under way.", func() uint64 {
				s := b.Stats()
				return s.Refused + s.Overloaded
			}),
	}
}

// Stats are figures for an operator. All but the first two only grow.
type Stats struct {
	State    State
	InFlight int64 // Takes under way
	// Failed counts Takes that spoke against the store, Late those of them
	// whose verdicts came after the deadline.
	Failed, Late uint64
	// Refused counts Takes that were failed because the breaker was not
	// closed, Overloaded those because of MaxInFlight.
	Refused, Overloaded uint64
	// Opened counts changes to Open, Probes the calls that were let through
	// to find out whether the store is back.
	Opened, Probes uint64
}

// Stats returns the present figures.
func (b *Backend) Stats() Stats {
	counts := b.circuit.Counts()
	return Stats{
		State: b.State(), InFlight: b.inFlight.Load(),
		Failed: counts.Failed, Late: b.late.Load(),
		Refused: b.refused.Load(), Overloaded: b.overloaded.Load(),
		Opened: counts.Opened, Probes: counts.Probes,
	}
}
