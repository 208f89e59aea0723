package ratelimit

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Series whose labels name rules are made when rules load, are bounded, and go with their rules.
const (
	// maxRuleSeries bounds the sets of labels that come from rules. A rule that finds no room counts under rule
	// "(other)" until there is some.
	maxRuleSeries = 10_000
	// maxValues bounds those with values that clients choose, which rules with detailed_metric and value_to_metric
	// have; the rest counts under the rule's own label. They take nothing from maxRuleSeries.
	maxValues = 10_000
	// maxRuleValues bounds those of one rule.
	maxRuleValues = maxValues / 2
	// maxPolicies bounds those that name policies. A policy that finds no room counts under rule "(other)" until there
	// is some.
	maxPolicies = 10_000

	otherRule = "(other)"
)

// ruleSeries are what a rule counts in, for its views under policies too.
type ruleSeries struct {
	now     atomic.Pointer[seriesSet] // other ones when there is room
	byLabel *labelSeries              // nil if the labels have no values and no policies
}

// A seriesSet is a series of each kind: those of a rule, or those of all rules without room.
type seriesSet struct {
	decided *metrics.Series // by Outcome
	leases  *metrics.Series // by leases.Event; nil without requests in flight
	limits  []limitSeries   // by number; those without room share one
	tiers   []*metrics.Series
	room    int // what they take of the bound; 0 for those without room
}

type limitSeries struct{ refused, overflowed *metrics.Series }

// nobody has series that count nothing, for services without metrics.
var nobody = newRuleSeries(&seriesSet{limits: make([]limitSeries, 1), tiers: make([]*metrics.Series, 1)})

func newRuleSeries(now *seriesSet) *ruleSeries {
	s := new(ruleSeries)
	s.now.Store(now)
	return s
}

func (s *ruleSeries) decided(o Outcome) *metrics.Counter { return s.now.Load().decided.At(int(o)) }

// limit returns the series of the limit of that number.
func (s *ruleSeries) limit(number int) limitSeries {
	limits := s.now.Load().limits
	return limits[min(number, len(limits)-1)]
}

func (s *ruleSeries) tier(number int) *metrics.Counter {
	tiers := s.now.Load().tiers
	return tiers[min(number, len(tiers)-1)].At(0)
}

// prepare sets how the shared series are made, which exist from the first rule on that has no room for its own.
func (m *Metrics) prepare() {
	m.others = sync.OnceValue(func() *seriesSet {
		return &seriesSet{
			decided: m.decided.Hold("", otherRule), leases: m.leases.Hold("", otherRule),
			tiers:  []*metrics.Series{m.tiers.Hold("", otherRule, "")},
			limits: []limitSeries{{m.refused.Hold("", otherRule, ""), m.overflowed.Hold("", otherRule, "")}},
		}
	})
	m.rest = sync.OnceValue(func() *policySeries {
		p := &policySeries{labels: [3]string{"", otherRule, ""}}
		p.decided.Store(m.byPolicy.Hold("", otherRule, ""))
		return p
	})
	m.brought = sync.OnceValue(func() *ruleSeries {
		return newRuleSeries(&seriesSet{decided: m.decided.Hold("", "override"),
			limits: []limitSeries{{m.refused.Hold("", "override", "override"), m.overflowed.Hold("", "override", "override")}}})
	})
}

// override returns the series of limits that requests bring themselves.
func (m *Metrics) override() *ruleSeries {
	if m == nil {
		return nobody
	}
	return m.brought()
}

// hold makes the series of a rule, until drop.
func (m *Metrics) hold(v *ruleView) {
	v.series = nobody
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v.series = newRuleSeries(m.make(v))
	if v.series.now.Load().room == 0 {
		m.waiting++
	}
	if v.hasValues() || v.policies != nil {
		v.series.byLabel = m.holdLabel(v)
	}
}

// make returns the series of a rule if there is room for all of them, else those of the others.
func (m *Metrics) make(v *ruleView) *seriesSet {
	r, labels := v.rule, LimitLabels(v.rule)
	s := &seriesSet{room: 1 + len(labels), limits: make([]limitSeries, max(len(labels), 1))}
	overflows := func(i int) bool { return v.limits[i].Limit.Overflow() != limit.Refuse }
	for i := range labels {
		if overflows(i) {
			s.room++
		}
	}
	var tiers []TierView
	if r.Concurrency != nil {
		tiers = v.limits[len(labels)-1].tiers
		s.room += 1 + len(tiers)
	}
	if !m.bounds.rules.Take(s.room) {
		return m.others()
	}
	s.decided = m.decided.Hold(r.Domain, r.Path)
	for i, l := range labels {
		s.limits[i].refused = m.refused.Hold(r.Domain, r.Path, l.Name)
		if overflows(i) {
			s.limits[i].overflowed = m.overflowed.Hold(r.Domain, r.Path, l.Name)
		}
	}
	if r.Concurrency != nil {
		s.leases = m.leases.Hold(r.Domain, r.Path)
	}
	for i := range tiers {
		s.tiers = append(s.tiers, m.tiers.Hold(r.Domain, r.Path, tiers[i].Label))
	}
	return s
}

// drop ends a hold.
func (m *Metrics) drop(v *ruleView) {
	if l := v.series.byLabel; l != nil {
		m.dropLabel(v, l)
	}
	s := v.series.now.Load()
	if s.room == 0 {
		m.waiting--
		return
	}
	m.decided.Drop(s.decided)
	m.leases.Drop(s.leases)
	for _, l := range s.limits {
		m.refused.Drop(l.refused)
		m.overflowed.Drop(l.overflowed)
	}
	for _, t := range s.tiers {
		m.tiers.Drop(t)
	}
	m.bounds.rules.GiveBack(s.room)
}

// loaded notes that rules are in force, in the place of those of gone: their series go, and what waits for room gets
// what there is. Calls that began before still count for them, which no scrape shows.
func (m *Metrics) loaded(rules *ruleset, gone []*ruleView) {
	if m == nil {
		return
	}
	m.loads.Of("ok").Inc()
	m.generation.Add(1)
	m.inForce.Store(&rulesInForce{rules.set, float64(time.Now().UnixNano()) / 1e9, rules.keyBudgets()})
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range gone {
		m.drop(v)
	}
	m.dropLoose(rules.set)
	for i := 0; i < len(rules.views) && m.waiting > 0 && m.bounds.rules.Free(); i++ {
		v := rules.views[i]
		if v == nil || v.series.now.Load().room > 0 {
			continue
		}
		if s := m.make(v); s.room > 0 {
			v.series.now.Store(s)
			m.waiting--
		}
	}
	for _, l := range m.byLabel {
		for _, p := range l.policies {
			m.giveRoom(p)
		}
	}
}

// A looseKey names series that no rule holds: those of descriptors without a rule, and of leases that outlive their
// rule.
type looseKey struct {
	of *metrics.Counters
	ruleLabel
}

// A looseSeries is made when it is first asked for. The next rules drop it.
type looseSeries struct {
	*metrics.Series
	room bool // else it is that of the others
}

func (m *Metrics) looseSeries(of *metrics.Counters, domain, rule string,
	others func() *metrics.Series) *metrics.Series {
	key := looseKey{of, ruleLabel{domain, rule}}
	if s, ok := m.loose.Load(key); ok {
		return s.(looseSeries).Series
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.loose.Load(key); ok {
		return s.(looseSeries).Series
	}
	s := looseSeries{room: m.bounds.rules.Take(1)}
	if s.room {
		s.Series = of.Hold(domain, rule)
	} else {
		s.Series = others()
	}
	m.loose.Store(key, s)
	return s.Series
}

// dropLoose drops loose series but those of domains that are in force, and of no domain.
func (m *Metrics) dropLoose(set *descriptors.Set) {
	domains := set.Domains()
	m.loose.Range(func(k, v any) bool {
		key, s := k.(looseKey), v.(looseSeries)
		_, known := slices.BinarySearch(domains, key.domain)
		if s.room && (key.domain == "" || key.path == "" && known) {
			return true
		}
		m.loose.Delete(k)
		if s.room {
			key.of.Drop(s.Series)
			m.bounds.rules.GiveBack(1)
		}
		return true
	})
}

// noRule returns what counts descriptors of a domain without a rule.
func (m *Metrics) noRule(domain string) *metrics.Counter {
	if m == nil {
		return nil
	}
	s := m.looseSeries(&m.decided, domain, "", func() *metrics.Series { return m.others().decided })
	return s.At(int(OutcomeNoRule))
}

// Lease implements [leases.Metrics]. The labels may be those of earlier rules: tokens outlive a change of rules.
func (m *Metrics) Lease(domain, rule string) *metrics.Series {
	if m == nil {
		return nil
	}
	if s := m.leases.Find(domain, rule); s != nil {
		return s
	}
	return m.looseSeries(&m.leases, domain, rule, func() *metrics.Series { return m.others().leases })
}

// labelSeries are the series under a rule's label for values of requests and for policies, which stay while a rule of
// that label has such.
type labelSeries struct {
	label            ruleLabel
	valued, policied int      // rules; guarded by Metrics.mu
	values           sync.Map // *metrics.Series by the label with the values
	ofValues         metrics.Bound

	mu       sync.RWMutex // Metrics.mu is locked before it, where both are
	policies map[string]*policySeries
	keys     int    // policies of one key each
	swept    uint64 // the snapshot by which removed policies were dropped last
}

func (m *Metrics) holdLabel(v *ruleView) *labelSeries {
	label := ruleLabel{v.rule.Domain, v.rule.Path}
	l := m.byLabel[label]
	if l == nil {
		l = &labelSeries{label: label, ofValues: metrics.Bound{Most: maxRuleValues}, policies: map[string]*policySeries{}}
		m.byLabel[label] = l
	}
	if v.hasValues() {
		l.valued++
	}
	if v.policies != nil {
		l.policied++
	}
	return l
}

func (m *Metrics) dropLabel(v *ruleView, l *labelSeries) {
	if v.hasValues() {
		l.valued--
	}
	if v.policies != nil {
		l.policied--
	}
	if l.valued == 0 {
		l.values.Range(func(values, s any) bool {
			l.values.Delete(values)
			l.ofValues.GiveBack(1)
			m.bounds.values.GiveBack(1)
			m.decided.Drop(s.(*metrics.Series))
			return true
		})
	}
	if l.policied == 0 {
		l.mu.Lock()
		for policy := range l.policies {
			m.dropPolicy(l, policy)
		}
		l.mu.Unlock()
	}
	if l.valued == 0 && l.policied == 0 {
		delete(m.byLabel, l.label)
	}
}

// value returns the series of a rule for values of requests, nil if there is no room.
func (m *Metrics) value(v *ruleView, values string) *metrics.Series {
	l := v.series.byLabel
	if s, ok := l.values.Load(values); ok {
		return s.(*metrics.Series)
	}
	if !l.ofValues.Free() || !m.bounds.values.Free() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := l.values.Load(values); ok {
		return s.(*metrics.Series)
	}
	if l.valued == 0 || !l.ofValues.Take(1) {
		return nil
	}
	if !m.bounds.values.Take(1) {
		l.ofValues.GiveBack(1)
		return nil
	}
	s := m.decided.Hold(v.rule.Domain, values)
	l.values.Store(values, s)
	return s
}

// hasValues reports whether values of requests are in the labels of a rule.
func (v *ruleView) hasValues() bool { return v.rule.Metric.Detailed || v.rule.Metric.ValueAt != nil }

// counter returns what counts decisions under the rule.
func (v *ruleView) counter(m *Metrics, set *descriptors.Set, entries []descriptors.Entry, o Outcome) *metrics.Counter {
	if m != nil && v.hasValues() {
		if s := m.value(v, set.MetricLabel(v.rule, entries)); s != nil {
			return s.At(int(o))
		}
	}
	return v.series.decided(o)
}

// count makes the view's limits and tiers count in the series of its rule.
func (v *ruleView) count() {
	for i := range v.limits {
		lv := &v.limits[i]
		lv.series, lv.number = v.series, i
		v.warns = v.warns || lv.warnLeft >= 0
		for j := range lv.tiers {
			lv.tiers[j].series, lv.tiers[j].number = v.series, j
		}
	}
	if v.reserve != nil { // which refuses as the first limit that reserves does
		first := slices.IndexFunc(v.limits, func(lv LimitView) bool { return lv.reserved })
		v.reserve.lease.series, v.reserve.lease.number = v.series, max(first, 0)
	}
}

// refusals counts requests that this limit refused.
func (lv *LimitView) refusals() *metrics.Counter { return lv.series.limit(lv.number).refused.At(0) }

// overflow counts hits that the limit took although they did not fit.
func (lv *LimitView) overflow() *metrics.Counter { return lv.series.limit(lv.number).overflowed.At(0) }

func (lv *LimitView) countLease(e leases.Event) { lv.series.now.Load().leases.At(int(e)).Inc() }

// hit counts a request that the tier applies to.
func (t *TierView) hit() { t.series.tier(t.number).Inc() }
