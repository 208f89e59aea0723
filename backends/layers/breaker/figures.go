package breaker

import "github.com/headgate-rls/headgate/backends"

// Figures returns the metrics of the breaker.
func (b *Backend) Figures() []backends.Figure {
	return []backends.Figure{
		backends.Gauge("headgate_breaker_open", "1 while the circuit breaker is open because the backend failed, 0.5 while it probes the backend.", func() float64 {
			return map[State]float64{Open: 1, HalfOpen: 0.5}[b.State()]
		}),
		backends.Counter("headgate_breaker_openings_total", "How often the breaker opened.", func() uint64 { return b.Stats().Opened }),
		backends.Counter("headgate_breaker_refusals_total", "Calls not made because the breaker was open or too many calls were under way.", func() uint64 {
			s := b.Stats()
			return s.Refused + s.Overloaded
		}),
	}
}
