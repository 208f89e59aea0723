package insight

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the metrics of the coverage.
func (c *Coverage) Rows() []metrics.Row {
	domain := metrics.Open("domain")
	return []metrics.Row{
		{Name: "headgate_descriptors_matched_total", Kind: metrics.IsCounter, Labels: domain,
			Help: "Descriptors that a rule matches, of domains that rules have.",
			Each: c.byDomain(func(s *Shape) int64 { return s.Matched.Value() })},
		{Name: "headgate_descriptors_unmatched_total", Kind: metrics.IsCounter, Labels: domain,
			Help: "Descriptors that no rule matches, of domains that rules have: they are not limited.",
			Each: c.byDomain(func(s *Shape) int64 { return s.Missed.Value() })},
		{Name: "headgate_calls_matched_total", Kind: metrics.IsCounter, Labels: domain,
			Help: "Calls of which a rule matched a descriptor, by domain.",
			Each: c.eachDomain(func(d *Domain) int64 { return d.Covered.Value() })},
		{Name: "headgate_calls_unmatched_total", Kind: metrics.IsCounter, Labels: domain,
			Help: "Calls of which no rule matched any descriptor, of domains that rules have: they are not limited.",
			Each: c.eachDomain(func(d *Domain) int64 { return d.Uncovered.Value() })},
		metrics.GaugeOf("headgate_descriptor_shapes",
			"Shapes of descriptors (their keys, in order) that were seen. At 1000 there is no room for more.",
			func() int {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.count.shapes
			}),
	}
}

// byDomain emits the sum of a figure of the shapes of each domain.
func (c *Coverage) byDomain(figure func(*Shape) int64) func(metrics.Emit) {
	return func(emit metrics.Emit) {
		list := c.Shapes()
		for i := 0; i < len(list); {
			domain, sum := list[i].Domain, int64(0)
			for ; i < len(list) && list[i].Domain == domain; i++ {
				sum += figure(list[i])
			}
			emit([]string{domain}, float64(sum), nil)
		}
	}
}

// eachDomain emits a figure of each domain.
func (c *Coverage) eachDomain(figure func(*Domain) int64) func(metrics.Emit) {
	return func(emit metrics.Emit) {
		c.domains.Range(func(name, d any) bool {
			emit([]string{name.(string)}, float64(figure(d.(*Domain))), nil)
			return true
		})
	}
}
