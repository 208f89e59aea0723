package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/accesslog"
)

// startAtZero makes the series of counters whose labels are known from the
// start.
func (m *Metrics) startAtZero() {
	for _, result := range []string{"ok", "error"} {
		m.reloads.WithLabelValues(result)
	}
	for cause, policies := range ratelimit.DegradedLabels() {
		for _, policy := range policies {
			m.degraded.WithLabelValues(cause, policy)
		}
	}
	for e := range accesslog.NumEvents {
		m.logged.WithLabelValues(e.String())
	}
	for _, where := range []string{"backend", "combine", "connection", "worker", "grpc", "stream"} {
		m.panics.WithLabelValues(where)
	}
}

// RulesLoaded records that set is in force, and drops the series of rules that
// are not in it.
func (m *Metrics) RulesLoaded(set *descriptors.Set, at time.Time) {
	m.reloads.WithLabelValues("ok").Inc()
	m.generation.Inc()
	m.loaded.Set(float64(at.UnixNano()) / 1e9)
	m.rules.Set(float64(len(set.Rules())))
	m.hash.Set(float64(set.Hash()))
	m.limits.set(set)
	m.dropGone(inForce(set))
}

// RulesFailed records that rules could not be loaded.
func (m *Metrics) RulesFailed() {
	m.reloads.WithLabelValues("error").Inc()
	m.lastLoad.Set(0)
}

// RulesRead records that all files of rules are in force as they are.
func (m *Metrics) RulesRead() { m.lastLoad.Set(1) }

// inForce returns what says whether labels are about a rule of set, or about no
// rule in particular.
func inForce(set *descriptors.Set) func(ofRule) bool {
	rules, domains := map[ruleKey]*descriptors.Rule{}, map[string]bool{"": true}
	for _, r := range set.Rules() {
		rules[ruleKey{r.Domain, r.Path}] = r
	}
	for _, d := range set.Domains() {
		domains[d] = true
	}
	return func(labels ofRule) bool {
		key := labels.of()
		r := rules[key]
		switch labels.(type) {
		case valueLabels, ruleBudget:
			return r != nil && (r.Metric.Detailed || r.Metric.ValueAt != nil)
		}
		return r != nil || key.domain == "" || key.rule == "" && domains[key.domain]
	}
}

// constants are gauges that change all at once.
type constants struct {
	desc *prometheus.Desc
	list atomic.Pointer[[]prometheus.Metric]
}

func (c *constants) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *constants) Collect(ch chan<- prometheus.Metric) {
	if list := c.list.Load(); list != nil {
		for _, metric := range *list {
			ch <- metric
		}
	}
}

// set has the limits of set, as many as maxRules.
func (c *constants) set(set *descriptors.Set) {
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
