package telemetry

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
)

// RulesLoaded records that set is in force, and drops the series of rules that
// are not in it.
func (m *Metrics) RulesLoaded(set *descriptors.Set, at time.Time) {
	m.reloads.WithLabelValues("ok").Inc()
	m.generation.Inc()
	m.loaded.Set(float64(at.UnixNano()) / 1e9)
	m.rules.Set(float64(len(set.Rules())))
	m.hash.Set(float64(set.Hash()))
	m.inForce.mu.Lock()
	defer m.inForce.mu.Unlock()
	if m.inForce.replace(m.limits.set.Swap(set), set) {
		m.keeper.dropGone(m.inForce.wants)
	}
	if m.reference != nil {
		m.reference.loaded.Inc()
		m.reference.dropGone(m.inForce.rules)
	}
}

// RulesFailed records that rules could not be loaded.
func (m *Metrics) RulesFailed() {
	m.reloads.WithLabelValues("error").Inc()
	m.lastLoad.Set(0)
	if m.reference != nil {
		m.reference.failed.Inc()
	}
}

// RulesRead records that all files of rules are in force as they are.
func (m *Metrics) RulesRead() { m.lastLoad.Set(1) }

// rulesInForce has the rules in force by what labels call them. Its memory is used again for the
// next rules, which may come soon and be many.
type rulesInForce struct {
	mu      sync.Mutex
	rules   map[ruleKey]*descriptors.Rule
	domains map[string]bool
}

// replace takes the rules of set, which come after those of old. It reports whether series may have to
// go: those of a rule or domain that is gone.
func (f *rulesInForce) replace(old, set *descriptors.Set) bool {
	domains := make(map[string]bool)
	for _, d := range set.Domains() {
		domains[d] = true
	}
	same := maps.Equal(f.domains, domains)
	f.domains = domains
	added, gone, ok := set.Since(old)
	if ok && len(f.rules) == len(old.Rules()) { // else rules of old have one label
		for _, r := range gone {
			delete(f.rules, ruleKey{r.Domain, r.Path})
		}
		f.add(added)
		return !same || slices.ContainsFunc(gone, f.lacks)
	}
	if f.rules == nil || len(f.rules) > 2*len(set.Rules())+maxRules {
		f.rules = make(map[ruleKey]*descriptors.Rule, len(set.Rules()))
	}
	clear(f.rules)
	f.add(set.Rules())
	return true
}

// lacks reports whether no rule has the label of r and series of the same kinds.
func (f *rulesInForce) lacks(r *descriptors.Rule) bool {
	other := f.rules[ruleKey{r.Domain, r.Path}]
	return other == nil || hasValues(r) && !hasValues(other) || r.Policy != nil && other.Policy == nil
}

// hasValues reports whether values of requests are in the labels of a rule.
func hasValues(r *descriptors.Rule) bool { return r.Metric.Detailed || r.Metric.ValueAt != nil }

func (f *rulesInForce) add(rules []*descriptors.Rule) {
	for _, r := range rules {
		f.rules[ruleKey{r.Domain, r.Path}] = r
	}
}

// wants reports whether labels are about a rule in force, or about no rule in particular.
func (f *rulesInForce) wants(labels ofRule) bool {
	key := labels.of()
	r := f.rules[key]
	switch labels.(type) {
	case valueLabels, ruleBudget:
		return r != nil && hasValues(r)
	case policyLabels:
		return r != nil && r.Policy != nil || key.domain == ""
	}
	return r != nil || key.domain == "" || key.rule == "" && f.domains[key.domain]
}

// has is wants for those who do not hold the lock.
func (f *rulesInForce) has(labels ofRule) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wants(labels)
}

// maxFiles bounds the files that have a series of their own.
const maxFiles = 100

// RulesFileErrors records how many errors each file of rules has. Beyond
// maxFiles, errors are counted under file "(other)".
func (m *Metrics) RulesFileErrors(errors map[string]int) {
	m.fileErrors.Reset()
	for i, file := range slices.Sorted(maps.Keys(errors)) {
		if i >= maxFiles {
			file = "(other)"
		}
		m.fileErrors.WithLabelValues(strings.ToValidUTF8(file, "_")).Add(float64(errors[file]))
	}
}
