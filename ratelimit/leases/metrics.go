package leases

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the metrics of requests in flight. A nil Tracker has the same table.
func (t *Tracker) Rows() []metrics.Row {
	figure := func(f func(Stats) int) func() int { return func() int { return f(t.Stats()) } }
	return []metrics.Row{
		{Name: "headgate_requests_in_flight", Kind: metrics.IsGauge, Labels: metrics.Open("domain", "rule"),
			Each: t.eachInFlight(false),
			Help: "Requests in flight, of all replicas together. Kept up with each lease and compared with the backend in the " +
				"background; a scrape calls nothing."},
		{Name: "headgate_reservations_open", Kind: metrics.IsGauge, Labels: metrics.Open("domain", "rule"),
			Each: t.eachInFlight(true),
			Help: "Reservations that are neither settled nor lost, of all replicas together; as exact as " +
				"headgate_requests_in_flight is."},
		metrics.GaugeOf("headgate_requests_in_flight_complete",
			"1 if headgate_requests_in_flight counts all requests and was compared with the backend lately, else 0.",
			func() int {
				_, complete := t.InFlight()
				return metrics.Truth(complete)
			}),
		metrics.GaugeOf("headgate_requests_in_flight_keys",
			"Keys under which requests in flight are counted, at most 16,384.", figure(func(s Stats) int { return s.Keys })),
		metrics.GaugeOf("headgate_owners", "Proxies that are known to have requests in flight, at most 16,384.",
			figure(func(s Stats) int { return s.Owners })),
		metrics.CounterOf("headgate_presence_failures_total",
			"Failures to read or write the registry of requests in flight, which replicas share.",
			figure(func(s Stats) int { return int(s.Failures) })),
	}
}

func (t *Tracker) eachInFlight(reserves bool) func(metrics.Emit) {
	return func(emit metrics.Emit) {
		list, _ := t.InFlight()
		for _, f := range list {
			if f.Reserves == reserves {
				emit([]string{f.Domain, f.Rule}, float64(f.Count), nil)
			}
		}
	}
}
