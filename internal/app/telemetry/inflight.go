package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// inFlight publishes what a tracker knows of requests in flight.
type inFlight struct {
	tracker         *leases.Tracker
	count, complete *prometheus.Desc
}

func (c *inFlight) rows() []row {
	stat := func(f func(leases.Stats) float64) func() float64 {
		return func() float64 { return f(c.tracker.Stats()) }
	}
	return []row{
		described(&c.count, isGauge, metric{name: "headgate_requests_in_flight", labels: open("domain", "rule"),
			help: "Requests in flight, of all replicas together. Kept up with each lease and compared with the backend in the background; a scrape calls nothing."}),
		described(&c.complete, isGauge, metric{name: "headgate_requests_in_flight_complete",
			help: "1 if headgate_requests_in_flight counts all requests and was compared with the backend lately, else 0."}),
		figure(isGauge, stat(func(s leases.Stats) float64 { return float64(s.Keys) }), metric{name: "headgate_requests_in_flight_keys",
			help: "Keys under which requests in flight are counted, at most 16,384."}),
		figure(isGauge, stat(func(s leases.Stats) float64 { return float64(s.Owners) }), metric{name: "headgate_owners",
			help: "Proxies that are known to have requests in flight, at most 16,384."}),
		figure(isCounter, stat(func(s leases.Stats) float64 { return float64(s.Failures) }), metric{name: "headgate_presence_failures_total",
			help: "Failures to read or write the registry of requests in flight, which replicas share."}),
	}
}

// AddInFlight publishes what t knows of requests in flight.
func (m *Metrics) AddInFlight(t *leases.Tracker) {
	c := &inFlight{tracker: t}
	register(m.registry, c.rows(), nil)
	m.registry.MustRegister(c)
}

// Describe implements prometheus.Collector.
func (c *inFlight) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.count
	ch <- c.complete
}

// Collect implements prometheus.Collector.
func (c *inFlight) Collect(ch chan<- prometheus.Metric) {
	list, complete := c.tracker.InFlight()
	for _, f := range list {
		ch <- prometheus.MustNewConstMetric(c.count, prometheus.GaugeValue, float64(f.Count), f.Domain, f.Rule)
	}
	value := 0.0
	if complete {
		value = 1
	}
	ch <- prometheus.MustNewConstMetric(c.complete, prometheus.GaugeValue, value)
}
