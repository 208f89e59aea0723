package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
)

// limits publishes the limits of the rules in force, which change all at once.
type limits struct {
	desc *prometheus.Desc
	list atomic.Pointer[[]prometheus.Metric]
}

func (c *limits) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *limits) Collect(ch chan<- prometheus.Metric) {
	if list := c.list.Load(); list != nil {
		for _, metric := range *list {
			ch <- metric
		}
	}
}

// set replaces the limits by those of set, as many as maxRules.
func (c *limits) set(set *descriptors.Set) {
	var list []prometheus.Metric
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
	c.list.Store(&list)
}
