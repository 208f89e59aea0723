package telemetry

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// limits publishes the limits of the rules in force, which change all at once. The series are made
// for the first scrape that asks for them: rules may change more often than that.
type limits struct {
	desc *prometheus.Desc
	set  atomic.Pointer[descriptors.Set]

	mu   sync.Mutex
	of   *descriptors.Set
	list []prometheus.Metric // of the limits of of
}

func (c *limits) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *limits) Collect(ch chan<- prometheus.Metric) {
	for _, metric := range c.series() {
		ch <- metric
	}
}

// series returns the limits in force, as many as maxRules.
func (c *limits) series() []prometheus.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	if set := c.set.Load(); set != c.of {
		c.of, c.list = set, c.seriesOf(set)
	}
	return c.list
}

func (c *limits) seriesOf(set *descriptors.Set) (list []prometheus.Metric) {
	seen := map[refusalLabels]bool{} // rules of different places can have the same label
	for _, r := range set.Rules() {
		if len(list) == maxRules {
			break
		}
		for _, l := range ratelimit.LimitLabels(r) {
			labels := refusalLabels{ruleKey{r.Domain, r.Path}, l.Name}
			if len(list) == maxRules || seen[labels] {
				continue
			}
			seen[labels] = true
			list = append(list, prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(l.Limit.Max()),
				r.Domain, r.Path, l.Name, l.Limit.Algorithm().String()))
		}
	}
	return list
}
