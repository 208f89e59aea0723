package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/random"
)

// TestValuesTakeNothingFromRules: however many values requests have, every rule
// has its own series, and what is left of a rule's values counts under the rule.
func TestValuesTakeNothingFromRules(t *testing.T) {
	m := New("v1")
	for i := range 3 * maxValues {
		m.Values("shop", "tenant", fmt.Sprint("tenant_", i))[ratelimit.OutcomeOK].Count(1)
	}
	for i := range maxRuleValues { // another rule still has room for some
		m.Values("shop", "user", fmt.Sprint("user_", i))[ratelimit.OutcomeOK].Count(1)
	}
	for i := range 500 {
		m.Rule("shop", fmt.Sprint("rule", i))[ratelimit.OutcomeOverLimit].Count(1)
	}
	text := scrape(t, m)
	wantLines(t, text,
		`headgate_decisions_total{domain="shop",outcome="ok",rule="tenant_0"} 1`,
		fmt.Sprintf(`headgate_decisions_total{domain="shop",outcome="ok",rule="tenant"} %d`, 3*maxValues-maxRuleValues),
		fmt.Sprintf(`headgate_decisions_total{domain="shop",outcome="ok",rule="user_%d"} 1`, maxRuleValues-1),
		`headgate_decisions_total{domain="shop",outcome="over_limit",rule="rule0"} 1`,
		`headgate_decisions_total{domain="shop",outcome="over_limit",rule="rule499"} 1`)
	if n := strings.Count(text, "headgate_decisions_total{"); n > maxValues+501 {
		t.Errorf("%d series", n)
	}
	if strings.Contains(text, otherRule) {
		t.Error("something is counted under " + otherRule)
	}
}

// TestSeriesGoWithTheirRule: a reload drops the series of rules that are gone,
// with all their values, and makes room; the others go on.
func TestSeriesGoWithTheirRule(t *testing.T) {
	m := New("v1")
	m.RulesLoaded(rulesOf(t, shop), time.Unix(1, 0))
	old := m.Rule("shop", "path")
	for i := range maxRuleValues + 10 {
		m.Values("shop", "tenant", fmt.Sprint("tenant_", i))[ratelimit.OutcomeOK].Count(1)
	}
	old[ratelimit.OutcomeOK].Count(3)
	m.Rule("shop", "")[ratelimit.OutcomeNoRule].Count(1)
	m.Rule("", "override")[ratelimit.OutcomeOK].Count(1)
	m.Lease("shop", "path")[0].Inc()
	m.Tier("shop", "path", "5").Inc()
	m.Refusals("shop", "path", "1").Count(1)
	m.Refusals("shop", "tenant", "burst").Count(1)

	m.RulesLoaded(rulesOf(t, "domain: shop\ndescriptors: [{key: tenant, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}]"), time.Unix(2, 0))
	m.Rule("shop", "tenant")[ratelimit.OutcomeOK].Count(1)
	old[ratelimit.OutcomeOK].Count(5)        // a call that began under the old rules
	old[ratelimit.OutcomeOverLimit].Count(5) // which was not a series yet
	text := scrape(t, m)
	if strings.Contains(text, `rule="path"`) {
		t.Error("a rule that is gone has series")
	}
	wantLines(t, text, `headgate_decisions_total{domain="shop",outcome="ok",rule="tenant_0"} 1`,
		`headgate_decisions_total{domain="shop",outcome="no_rule",rule=""} 1`, `headgate_decisions_total{domain="",outcome="ok",rule="override"} 1`,
		`headgate_refusals_total{domain="shop",limit="burst",rule="tenant"} 1`)

	m.RulesLoaded(rulesOf(t, "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: hour, requests_per_unit: 1}}]"), time.Unix(3, 0))
	if text = scrape(t, m); strings.Contains(text, "tenant_") {
		t.Error("values of a rule that has none any more")
	}
	m.RulesLoaded(rulesOf(t, "domain: other\ndescriptors: [{key: tenant, rate_limit: {unit: hour, requests_per_unit: 1}}]"), time.Unix(4, 0))
	if text = scrape(t, m); strings.Contains(text, `"shop"`) {
		t.Error("series of a domain that is gone")
	}
	if n := m.keeper.values.used.Load(); n != 0 {
		t.Errorf("%d values are counted as used", n)
	}
	if n := m.keeper.static.used.Load(); n != 1 { // "override"
		t.Errorf("%d labels of rules are counted as used", n)
	}
	m.RulesLoaded(rulesOf(t, shop), time.Unix(5, 0))
	m.Rule("shop", "path")[ratelimit.OutcomeOK].Count(1)
	wantLines(t, scrape(t, m), `headgate_decisions_total{domain="shop",outcome="ok",rule="path"} 1`)
}

// TestRulesWithoutRoomGetSeriesLater: a rule that has no series of its own counts under (other), and
// under its own labels as soon as other rules go, although its user keeps what it got first. A rule
// that is gone takes no room.
func TestRulesWithoutRoomGetSeriesLater(t *testing.T) {
	m := New("v1")
	many := func(from, n int) string {
		var b strings.Builder
		b.WriteString("domain: many\ndescriptors:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {key: k%d, rate_limit: {unit: hour, requests_per_unit: 1}}\n", from+i)
		}
		return b.String()
	}
	const late = "domain: late\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]"
	m.RulesLoaded(rulesOf(t, many(0, maxRules)), time.Unix(1, 0))
	for i := range maxRules {
		m.Rule("many", fmt.Sprint("k", i))
	}
	// As the service does: it prepares the new rules before the old ones go.
	decided, refused, overflow, tier, lease := m.Rule("late", "k"), m.Refusals("late", "k", "1"), m.Overflow("late", "k", "1"), m.Tier("late", "k", "5"), m.Lease("late", "k")
	gone := m.Rule("gone", "k")
	count := func() {
		decided[ratelimit.OutcomeOverLimit].Count(1)
		gone[ratelimit.OutcomeOK].Count(1)
		refused.Count(1)
		overflow.Count(1)
		tier.Inc()
		lease[0].Inc()
	}
	count()
	m.RulesLoaded(rulesOf(t, late), time.Unix(2, 0))
	count()
	text := scrape(t, m)
	wantLines(t, text, `headgate_decisions_total{domain="late",outcome="over_limit",rule="k"} 1`,
		`headgate_decisions_total{domain="",outcome="over_limit",rule="(other)"} 1`,
		`headgate_refusals_total{domain="late",limit="1",rule="k"} 1`, `headgate_overflow_hits_total{domain="late",limit="1",rule="k"} 1`,
		`headgate_concurrency_tier_total{domain="late",rule="k",tier="5"} 1`)
	if !strings.Contains(text, `headgate_leases_total{domain="late"`) {
		t.Error("leases have no series")
	}
	if strings.Contains(text, `domain="gone"`) {
		t.Error("a rule that is gone has a series")
	}
}

// TestRulesWithOneLabelCountTogether: rules whose labels are the same, by their
// place or by values of requests, share series, which go with the last of them.
func TestRulesWithOneLabelCountTogether(t *testing.T) {
	const both = `
domain: shop
descriptors:
  - {key: tenant, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: user, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`
	m := New("v1")
	m.RulesLoaded(rulesOf(t, both), time.Unix(1, 0))
	m.Values("shop", "tenant", "x")[ratelimit.OutcomeOK].Count(1)
	m.Values("shop", "user", "x")[ratelimit.OutcomeOK].Count(1)
	m.Rule("shop", "user")[ratelimit.OutcomeOK].Count(1)
	m.Values("shop", "tenant", "user")[ratelimit.OutcomeOK].Count(1)
	wantLines(t, scrape(t, m), `headgate_decisions_total{domain="shop",outcome="ok",rule="x"} 2`, `headgate_decisions_total{domain="shop",outcome="ok",rule="user"} 2`)

	m.RulesLoaded(rulesOf(t, strings.Replace(both, "key: user", "key: other", 1)), time.Unix(2, 0))
	m.Values("shop", "tenant", "x")[ratelimit.OutcomeOK].Count(1)
	m.Values("shop", "tenant", "user")[ratelimit.OutcomeOverLimit].Count(1)
	wantLines(t, scrape(t, m), `headgate_decisions_total{domain="shop",outcome="ok",rule="x"} 3`, `headgate_decisions_total{domain="shop",outcome="ok",rule="user"} 2`,
		`headgate_decisions_total{domain="shop",outcome="over_limit",rule="user"} 1`)

	m.RulesLoaded(rulesOf(t, strings.ReplaceAll(both, "detailed_metric: true, ", "")), time.Unix(3, 0))
	if text := scrape(t, m); strings.Contains(text, "headgate_decisions_total{") || len(m.decided.shared) != 0 {
		t.Errorf("series of labels that nobody has any more, %d of them kept", len(m.decided.shared))
	}
}

// TestSeriesWhileRulesChange counts under rules that come and go, and wants
// the budgets right at the end.
func TestSeriesWhileRulesChange(t *testing.T) {
	m := New("v1")
	sets := []*descriptors.Set{rulesOf(t, shop), rulesOf(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]")}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3000 {
				m.Values("shop", "tenant", fmt.Sprint("tenant_", i%50))[ratelimit.OutcomeOK].Count(1)
				m.Rule("shop", "path")[ratelimit.Outcome(i%int(ratelimit.NumOutcomes))].Count(1)
				m.Refusals("shop", "path", fmt.Sprint(g%2)).Count(1)
			}
		})
	}
	for i := range 50 {
		m.RulesLoaded(sets[i%2], time.Unix(int64(i), 0))
	}
	wg.Wait()
	m.RulesLoaded(sets[1], time.Unix(1, 0))
	if text := scrape(t, m); strings.Contains(text, "tenant") || strings.Contains(text, `"shop"`) {
		t.Error("series of rules that are gone")
	}
	if v, s := m.keeper.values.used.Load(), m.keeper.static.used.Load(); v != 0 || s != 0 {
		t.Errorf("%d values and %d labels are counted as used", v, s)
	}
}

// TestLimitsAndTheHash: each limit in force has a series with its figure, and
// the hash depends on what the rules are and not on what files they are in.
func TestLimitsAndTheHash(t *testing.T) {
	m := New("v1")
	m.RulesLoaded(rulesOf(t, shop), time.Unix(1, 0))
	wantLines(t, scrape(t, m),
		`headgate_limit{algorithm="token_bucket",domain="shop",limit="burst",rule="tenant"} 100`,
		`headgate_limit{algorithm="sliding_log",domain="shop",limit="2",rule="tenant"} 50`,
		`headgate_limit{algorithm="fixed_window",domain="shop",limit="1",rule="path"} 7`,
		`headgate_limit{algorithm="concurrency",domain="shop",limit="concurrency",rule="path"} 5`)
	a, b := rulefile.Source{Name: "a", Data: []byte(shop)}, rulefile.Source{Name: "b", Data: []byte("domain: b\ndescriptors: [{key: k}]")}
	load := func(sources ...rulefile.Source) uint64 {
		set, problems := rulefile.Load(sources, rulefile.Options{})
		if set == nil {
			t.Fatal(problems)
		}
		m.RulesLoaded(set, time.Unix(2, 0))
		wantLines(t, scrape(t, m), fmt.Sprintf("headgate_rules_hash %v", float64(set.Hash())))
		return set.Hash()
	}
	one := load(a, b)
	a.Name, b.Name = "x/2.yaml", "x/1.yaml"
	if two := load(b, a); two != one || one == 0 || one >= 1<<52 {
		t.Errorf("hashes %d and %d", one, two)
	}
	a.Data = []byte(strings.Replace(shop, "250", "251", 1))
	if load(b, a) == one {
		t.Error("other rules have the same hash")
	}
	// Rules of different places can have the same label, limits the name of another's number.
	m.RulesLoaded(rulesOf(t, `
domain: d
descriptors:
  - {key: a.b, limits: [{algorithm: sliding_log, limit: 5, window: 1h}, {name: "1", algorithm: sliding_log, limit: 6, window: 1h}]}
  - {key: a, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 9}}]}
`), time.Unix(3, 0))
	wantLines(t, scrape(t, m), `headgate_limit{algorithm="sliding_log",domain="d",limit="1",rule="a.b"} 5`)
}

// TestCountersStartAtZero: an alert on the first failure finds what was there
// before.
func TestCountersStartAtZero(t *testing.T) {
	m := New("v1")
	text := scrape(t, m)
	wantLines(t, text,
		`headgate_rules_loads_total{result="error"} 0`, `headgate_rules_loads_total{result="ok"} 0`, `headgate_rules_last_load_successful 1`,
		`headgate_degraded_requests_total{cause="backend_error",policy="allow"} 0`, `headgate_degraded_requests_total{cause="backend_error",policy="local"} 0`,
		`headgate_degraded_requests_total{cause="overload",policy="deny"} 0`, `headgate_access_log_total{event="refused"} 0`)
	m.Refusals("shop", "path", "1")
	m.Lease("shop", "path")
	m.Tier("shop", "path", "5")
	wantLines(t, scrape(t, m), `headgate_refusals_total{domain="shop",limit="1",rule="path"} 0`, `headgate_leases_total{domain="shop",event="reaped",rule="path"} 0`,
		`headgate_concurrency_tier_total{domain="shop",rule="path",tier="5"} 0`)
	m.Slots()
	wantLines(t, scrape(t, m), `headgate_slots_retries_total{kind="passing"} 0`, `headgate_slots_retries_total{kind="held"} 0`, `headgate_slots_contended_windows_total 0`,
		`headgate_slots_background_runs_total{result="error",work="retention"} 0`, `headgate_slots_background_runs_total{result="ok",work="provision"} 0`,
		`headgate_slots_background_rows_total{work="provision"} 0`, `headgate_slots_request_duration_seconds_count{outcome="exhausted"} 0`)
	m.RulesFailed()
	wantLines(t, scrape(t, m), `headgate_rules_loads_total{result="error"} 1`, `headgate_rules_last_load_successful 0`)
	m.RulesLoaded(rulesOf(t, shop), time.Unix(1, 0)) // perhaps in part
	wantLines(t, scrape(t, m), `headgate_rules_last_load_successful 0`)
	m.RulesRead()
	wantLines(t, scrape(t, m), `headgate_rules_last_load_successful 1`)
}

// Rules that come and go are in force under their labels, also where rules share one.
func TestRulesInForceAfterManyChanges(t *testing.T) {
	r := random.Rand(t, 14)
	var m rulesInForce
	var set *descriptors.Set
	domains := []*descriptors.DomainSpec{{Name: "d"}, {Name: "e"}}
	stays := 0
	for n := range random.Times(300, 5000) {
		domains = slices.Clone(domains)
		i := r.IntN(len(domains))
		d := *domains[i]
		domains[i] = &d
		body := descriptors.Body{Limits: []descriptors.LimitSpec{{Alone: true, Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Hour}}}}
		switch {
		case r.IntN(20) == 0: // the label of what the other rules have below them
			d.Rules = append(slices.Clone(d.Rules), &descriptors.RuleSpec{Key: fmt.Sprint("k", n), Rules: []*descriptors.RuleSpec{{Key: "x", Body: body}}},
				&descriptors.RuleSpec{Key: fmt.Sprint("k", n, ".x"), Body: body})
		case len(d.Rules) > 0 && r.IntN(3) == 0: // another limit, or other metrics
			d.Rules = slices.Clone(d.Rules)
			s := *d.Rules[0]
			s.DetailedMetric = r.IntN(2) == 0
			d.Rules[0] = &s
		case len(d.Rules) > 0 && r.IntN(2) == 0:
			d.Rules = slices.Delete(slices.Clone(d.Rules), 0, 1+r.IntN(len(d.Rules)))
		case r.IntN(20) == 0:
			d.Name = fmt.Sprint("d", n)
		default:
			d.Rules = append(slices.Clone(d.Rules), &descriptors.RuleSpec{Key: fmt.Sprint("k", n), Body: body})
		}
		old := set
		var problems descriptors.Problems
		if set = descriptors.Rebuild(old, &descriptors.Spec{Domains: domains}, &problems); set == nil {
			t.Fatal(problems.Sorted())
		}
		before, beforeDomains := maps.Clone(m.rules), m.domains
		if !m.replace(old, set) {
			stays++
			for key, rule := range before {
				if !m.wants(ruleLabels{key}) || hasValues(rule) && !m.wants(valueLabels{key, "v"}) {
					t.Fatalf("series of %v stay, which have no rule", key)
				}
			}
			for d := range beforeDomains {
				if !m.wants(ruleLabels{ruleKey{d, ""}}) {
					t.Fatalf("series of the domain %s stay", d)
				}
			}
		}
		var want rulesInForce
		want.replace(nil, set)
		if !maps.Equal(m.domains, want.domains) || !slices.Equal(slices.SortedFunc(maps.Keys(m.rules), byName), slices.SortedFunc(maps.Keys(want.rules), byName)) {
			t.Fatalf("after %d changes %d rules of %d domains are in force, want %d of %d", n, len(m.rules), len(m.domains), len(want.rules), len(want.domains))
		}
	}
	if stays < 20 {
		t.Errorf("only %d changes leave all series", stays)
	}
}

func byName(a, b ruleKey) int {
	return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.rule, b.rule))
}
