package ratelimit

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// counted is a service's rules and what is counted under them.
type counted struct {
	*testing.T
	*Metrics
	conf  Config
	rules *ruleset
}

func newCounted(t *testing.T) *counted {
	c := &counted{T: t, Metrics: NewMetrics()}
	c.conf = Config{Caps: modelCaps(true), Encoder: unsent{}, Metrics: c.Metrics, Policies: new(policies.Set)}
	return c
}

// load puts rules in force, as a service does.
func (c *counted) load(text string) {
	c.Helper()
	rules, gone := newRuleset(mustLoad(c.T, text), c.rules, &c.conf)
	c.rules = rules
	c.loaded(rules, gone)
}

// view returns the view of a rule in force.
func (c *counted) view(domain, path string) *ruleView {
	c.Helper()
	for _, r := range c.rules.set.Rules() {
		if r.Domain == domain && r.Path == path {
			return c.rules.views[r.ID]
		}
	}
	c.Fatalf("no rule %s/%s", domain, path)
	return nil
}

// policy returns the series of a policy under a rule in force.
func (c *counted) policy(domain, path, policy string) *policySeries {
	c.Helper()
	return c.Metrics.policy(c.view(domain, path).series.byLabel, []byte(policy), false, c.conf.Policies.Snapshot())
}

// decide counts descriptors of a rule, of these values if it has them.
func (c *counted) decide(v *ruleView, o Outcome, n int64, values ...string) {
	if len(values) > 0 {
		if s := c.value(v, values[0]); s != nil {
			s.At(int(o)).Add(n)
			return
		}
	}
	v.series.decided(o).Add(n)
}

// text returns all series, as lines of Prometheus' format.
func (c *counted) text() string {
	var b strings.Builder
	for _, r := range c.Rows() {
		if r.Each == nil {
			fmt.Fprintf(&b, "%s %v\n", r.Name, r.Value())
			continue
		}
		r.Each(func(labels []string, v float64, _ *metrics.Counts) {
			b.WriteString(r.Name)
			for i, l := range r.Labels {
				fmt.Fprintf(&b, " %s=%s", l.Name, labels[i])
			}
			fmt.Fprintf(&b, " %v\n", v)
		})
	}
	return b.String()
}

func (c *counted) want(lines ...string) {
	c.Helper()
	text := c.text()
	for _, l := range lines {
		if n := strings.Count("\n"+text, "\n"+l+"\n"); n != 1 {
			c.Errorf("line %q is there %d times", l, n)
		}
	}
}

func (c *counted) wantNo(parts ...string) {
	c.Helper()
	text := c.text()
	for _, p := range parts {
		if at := strings.Index(text, p); at >= 0 {
			c.Errorf("there is %q", strings.SplitN(text[strings.LastIndexByte(text[:at], '\n')+1:], "\n", 2)[0])
		}
	}
}

// shop has two rules, of which tenant has the values of requests in its label.
const shop = `
domain: shop
descriptors:
  - {key: tenant, detailed_metric: true,
     limits: [{name: burst, algorithm: token_bucket, rate: 100/s, burst: 250},
              {algorithm: sliding_log, limit: 50, window: 1h}]}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 7},
     concurrency: [{threshold: 5, response: {statusCode: 429}}]}
`

// many are n rules with 4 sets of labels each: of decisions, of two limits' refusals, of overflow.
func many(domain string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	for i := range n {
		fmt.Fprintf(&b, "- {key: k%d, overflow: saturate, limits: [{algorithm: fixed_window, limit: 9, window: 1h}, "+
			"{algorithm: sliding_log, limit: 5, window: 1h}]}\n", i)
	}
	return b.String()
}

// TestSeriesOfRulesAreBounded: rules without room count together.
func TestSeriesOfRulesAreBounded(t *testing.T) {
	c := newCounted(t)
	c.load(many("d", maxRuleSeries/2))
	rules := c.rules.set.Rules()
	sets := int64(0)
	for _, r := range rules {
		v := c.rules.views[r.ID]
		c.decide(v, OutcomeOK, 1)
		v.limits[1].refusals().Inc()
		sets += int64(v.series.now.Load().room)
	}
	if !c.bounds.rules.Take(int(maxRuleSeries - sets)) {
		t.Errorf("%d sets of labels have series, want at most %d", sets, maxRuleSeries)
	}
	text := c.text()
	own := strings.Count(text, "headgate_decisions_total domain=d ")
	if n := strings.Count(text, "headgate_refusals_total domain=d "); n != 2*own || own == 0 || own == len(rules) {
		t.Errorf("%d rules of %d have series, %d limits", own, len(rules), n)
	}
	c.want(fmt.Sprintf("headgate_decisions_total domain= rule=(other) outcome=ok %d", len(rules)-own),
		fmt.Sprintf("headgate_refusals_total domain= rule=(other) limit= %d", len(rules)-own))
}

// TestSeriesOfValuesTakeNothingFromRules: however many values requests have, every rule has its own series, and what is
// left of a rule's values counts under the rule.
func TestSeriesOfValuesTakeNothingFromRules(t *testing.T) {
	c := newCounted(t)
	rule := "- {key: %s, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
	c.load("domain: shop\ndescriptors:\n" + fmt.Sprintf(rule, "tenant") + fmt.Sprintf(rule, "user") + fmt.Sprintf(
		rule, "late"))
	for i := range 3 * maxValues {
		c.decide(c.view("shop", "tenant"), OutcomeOK, 1, fmt.Sprint("tenant_", i))
	}
	for i := range maxRuleValues { // another rule still has room for some
		c.decide(c.view("shop", "user"), OutcomeOK, 1, fmt.Sprint("user_", i))
	}
	c.decide(c.view("shop", "late"), OutcomeOK, 1, "late_1")
	c.want("headgate_decisions_total domain=shop rule=tenant_0 outcome=ok 1",
		fmt.Sprintf("headgate_decisions_total domain=shop rule=tenant outcome=ok %d", 3*maxValues-maxRuleValues),
		fmt.Sprintf("headgate_decisions_total domain=shop rule=user_%d outcome=ok 1", maxRuleValues-1),
		"headgate_decisions_total domain=shop rule=late outcome=ok 1")
	c.wantNo(otherRule)
}

// TestSeriesGoWithTheirRule: a reload drops the series of rules that are gone, with all their values, and makes room;
// the others go on.
func TestSeriesGoWithTheirRule(t *testing.T) {
	c := newCounted(t)
	c.load(shop)
	old := c.view("shop", "path")
	for i := range maxRuleValues + 10 {
		c.decide(c.view("shop", "tenant"), OutcomeOK, 1, fmt.Sprint("tenant_", i))
	}
	c.decide(old, OutcomeOK, 3)
	c.noRule("shop").Inc()
	c.override().decided(OutcomeOK).Inc()
	c.Lease("shop", "path").At(int(leases.Acquired)).Inc()
	old.limits[0].refusals().Inc()
	c.view("shop", "tenant").limits[1].refusals().Inc()
	c.want("headgate_leases_total domain=shop rule=path event=reaped 0",
		"headgate_refusals_total domain=shop rule=path limit=concurrency 0")
	c.wantNo("rule=path outcome=over_limit", "rule=path outcome=unlimited") // which never happened

	c.load("domain: shop\ndescriptors: [{key: tenant, detailed_metric: true, limits: [{algorithm: sliding_log, limit: " +
		"1, window: 1h}, {algorithm: sliding_log, limit: 5, window: 2h}]}]")
	c.decide(c.view("shop", "tenant"), OutcomeOK, 1)
	c.decide(old, OutcomeOK, 5)        // a call that began under the old rules
	c.decide(old, OutcomeOverLimit, 5) // which was not a series yet
	c.wantNo("rule=path")
	c.want("headgate_decisions_total domain=shop rule=tenant_0 outcome=ok 1",
		"headgate_decisions_total domain=shop rule= outcome=no_rule 1",
		"headgate_decisions_total domain= rule=override outcome=ok 1",
		"headgate_refusals_total domain=shop rule=tenant limit=2 1")
	c.wantNo("limit=burst") // which no rule has any more
	c.Lease("shop", "path").At(int(leases.Released)).Inc()
	c.want("headgate_leases_total domain=shop rule=path event=released 1") // tokens outlive their rule

	c.load("domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: hour, requests_per_unit: 1}}]")
	c.wantNo("tenant_", "rule=path") // values of a rule that has none any more
	c.load("domain: other\ndescriptors: [{key: tenant, rate_limit: {unit: hour, requests_per_unit: 1}}]")
	c.wantNo("domain=shop")
	c.load("domain: other")
	c.none()
	c.load(shop)
	c.decide(c.view("shop", "path"), OutcomeOK, 1)
	c.want("headgate_decisions_total domain=shop rule=path outcome=ok 1")
}

// none wants all room to be free, and nothing kept.
func (c *counted) none() {
	c.Helper()
	for _, b := range []*metrics.Bound{&c.bounds.rules, &c.bounds.values, &c.bounds.policies} {
		if !b.Take(int(b.Most)) {
			c.Errorf("of %d places some are taken", b.Most)
			continue
		}
		b.GiveBack(int(b.Most))
	}
	if len(c.byLabel) != 0 || c.waiting != 0 {
		c.Errorf("%d labels are kept, %d rules wait", len(c.byLabel), c.waiting)
	}
}

// TestRulesWithoutRoomGetSeriesLater: a rule that has no series of its own counts under (other), and under its own
// labels as soon as other rules go, although its view stays.
func TestRulesWithoutRoomGetSeriesLater(t *testing.T) {
	c := newCounted(t)
	rules := func(n int) string {
		return many("many", n) + "- {key: late, overflow: saturate, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
	}
	c.load(rules(maxRuleSeries))
	v := c.view("many", "late")
	count := func() {
		c.decide(v, OutcomeOverLimit, 1)
		v.limits[0].refusals().Inc()
		v.limits[0].overflow().Inc()
	}
	count()
	c.want("headgate_decisions_total domain= rule=(other) outcome=over_limit 1")
	c.wantNo("rule=late")
	// As the service does: it prepares the new rules before the old ones go.
	c.load(rules(1))
	v = c.view("many", "late")
	count()
	c.want("headgate_decisions_total domain=many rule=late outcome=over_limit 1",
		"headgate_decisions_total domain= rule=(other) outcome=over_limit 1",
		"headgate_refusals_total domain=many rule=late limit=1 1",
		"headgate_overflow_hits_total domain=many rule=late limit=1 1")
}

// TestRulesWithOneLabelCountTogether: rules whose labels are the same, by their place or by values of requests, share
// series, which go with the last of them.
func TestRulesWithOneLabelCountTogether(t *testing.T) {
	const both = `
domain: shop
descriptors:
  - {key: tenant, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: user, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`
	c := newCounted(t)
	c.load(both)
	c.decide(c.view("shop", "tenant"), OutcomeOK, 1, "x")
	c.decide(c.view("shop", "user"), OutcomeOK, 1, "x")
	c.decide(c.view("shop", "user"), OutcomeOK, 1)
	c.decide(c.view("shop", "tenant"), OutcomeOK, 1, "user")
	c.want("headgate_decisions_total domain=shop rule=x outcome=ok 2",
		"headgate_decisions_total domain=shop rule=user outcome=ok 2")

	c.load(strings.Replace(both, "key: user", "key: other", 1))
	c.decide(c.view("shop", "tenant"), OutcomeOK, 1, "x")
	c.decide(c.view("shop", "tenant"), OutcomeOverLimit, 1, "user")
	c.want("headgate_decisions_total domain=shop rule=x outcome=ok 3",
		"headgate_decisions_total domain=shop rule=user outcome=ok 2",
		"headgate_decisions_total domain=shop rule=user outcome=over_limit 1")

	c.load(strings.ReplaceAll(both, "detailed_metric: true, ", ""))
	c.wantNo("rule=x")
	c.want("headgate_decisions_total domain=shop rule=user outcome=ok 2") // a rule in force has this label again
	c.load(`
domain: d
descriptors:
  - {key: a.b, limits: [{algorithm: sliding_log, limit: 5, window: 1h},
                       {name: "1", algorithm: sliding_log, limit: 6, window: 1h}]}
  - {key: a, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 9}}]}
`)
	for _, r := range c.rules.set.Rules() {
		c.decide(c.rules.views[r.ID], OutcomeOK, 1)
	}
	c.want("headgate_decisions_total domain=d rule=a.b outcome=ok 2",
		"headgate_limit domain=d rule=a.b limit=1 algorithm=sliding_log 5")
	c.load("domain: d")
	c.none()
}

// TestSeriesWhileRulesChange counts under rules that come and go, and wants the bounds right at the end.
func TestSeriesWhileRulesChange(t *testing.T) {
	c := newCounted(t)
	c.load(shop)
	tenant, path := c.view("shop", "tenant"), c.view("shop", "path")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3000 {
				c.decide(tenant, OutcomeOK, 1, fmt.Sprint("tenant_", i%50))
				c.decide(path, Outcome(i%int(NumOutcomes)), 1)
				path.limits[g%2].refusals().Inc()
				c.noRule(fmt.Sprint("shop", i%3)).Inc()
				c.Lease("shop", "path").At(0).Inc()
			}
		})
	}
	for i := range 50 {
		c.load([]string{"domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]", shop}[i%2])
		c.text()
	}
	wg.Wait()
	c.load("domain: d")
	c.wantNo("tenant", "domain=shop")
	c.none()
}

// TestLimitsAndRulesInForce: each limit in force has a series with its figure.
func TestLimitsAndRulesInForce(t *testing.T) {
	c := newCounted(t)
	c.want("headgate_rules 0", "headgate_rules_generation 0", "headgate_rules_loads_total result=error 0",
		"headgate_rules_loads_total result=ok 0",
		"headgate_degraded_requests_total cause=backend_error policy=local 0",
		"headgate_degraded_requests_total cause=overload policy=deny 0")
	c.load(shop)
	c.RulesFailed()
	c.answered("overload", "deny")
	c.want("headgate_rules 2", "headgate_rules_generation 1", "headgate_rules_loads_total result=ok 1",
		"headgate_rules_loads_total result=error 1",
		"headgate_degraded_requests_total cause=overload policy=deny 1",
		fmt.Sprintf("headgate_rules_hash %v", float64(c.rules.set.Hash())),
		"headgate_limit domain=shop rule=tenant limit=burst algorithm=token_bucket 100",
		"headgate_limit domain=shop rule=tenant limit=2 algorithm=sliding_log 50",
		"headgate_limit domain=shop rule=path limit=1 algorithm=fixed_window 7",
		"headgate_limit domain=shop rule=path limit=concurrency algorithm=concurrency 5")
	if n := c.Degraded(); n != 1 {
		t.Errorf("%d answers by policy, want 1", n)
	}
}

// tallyOf is a tally of decisions that left remaining of limit units.
func tallyOf(o Outcome, n, remaining, limit int64) *PolicyTally {
	t := &PolicyTally{Level: Level{Remaining: remaining, Limit: limit}}
	t.Outcomes[o] = n
	return t
}

const byUser = "{key: k, policy: 'k:{k}', rate_limit: {unit: hour, requests_per_unit: 1}}, {key: user, policy: " +
	"'user:{user}', rate_limit: {unit: hour, requests_per_unit: 1}}"

func (c *counted) loadList(rules string) {
	c.Helper()
	c.load("domain: shop\ndescriptors: [" + rules + "]")
}

// TestSeriesShowWhatPoliciesDecide: also that something did not happen yet, but for what is left.
func TestSeriesShowWhatPoliciesDecide(t *testing.T) {
	c := newCounted(t)
	c.loadList(byUser)
	big := c.policy("shop", "user", "user:big")
	if c.policy("shop", "user", "user:big") != big {
		t.Error("one policy has two series")
	}
	c.want("headgate_policy_decisions_total domain=shop rule=user policy=user:big outcome=over_limit 0")
	c.wantNo("headgate_policy_remaining_units ", "outcome=unlimited")
	big.record(tallyOf(OutcomeOK, 3, 40, 100))
	big.record(tallyOf(OutcomeOK, 2, 60, 100))
	big.record(tallyOf(OutcomeFailedOpen, 1, 0, 0))
	c.policy("shop", "user", PolicyOfKeys).record(tallyOf(OutcomeOverLimit, 4, 0, 5))
	c.want("headgate_policy_decisions_total domain=shop rule=user policy=user:big outcome=ok 5",
		"headgate_policy_decisions_total domain=shop rule=user policy=user:big outcome=failed_open 1",
		"headgate_policy_decisions_total domain=shop rule=user policy=(keys) outcome=over_limit 4",
		"headgate_policy_remaining_units domain=shop rule=user policy=user:big 40",
		"headgate_policy_limit_units domain=shop rule=user policy=user:big 100",
		"headgate_policy_remaining_units domain=shop rule=user policy=(keys) 0")
	c.dropPolicy(c.byLabel[ruleLabel{"shop", "user"}], "user:big")
	c.wantNo("user:big")
	c.want("headgate_policy_remaining_units domain=shop rule=user policy=(keys) 0")
	c.policy("shop", "user", "user:big").record(tallyOf(OutcomeOK, 1, 40, 100))
	c.want("headgate_policy_decisions_total domain=shop rule=user policy=user:big outcome=ok 1")
}

// TestSeriesOfPoliciesAreBounded: policies beyond the bound count together, and get series of their own when rules go;
// the series of a rule go with it, or with its policy.
func TestSeriesOfPoliciesAreBounded(t *testing.T) {
	c := newCounted(t)
	c.loadList(byUser)
	for i := range maxPolicies {
		c.policy("shop", "user", fmt.Sprint("user:", i)).record(tallyOf(OutcomeOK, 1, 1, 2))
	}
	late := c.policy("shop", "k", "k:late")
	late.record(tallyOf(OutcomeOK, 1, 1, 2))
	c.want("headgate_policy_decisions_total domain= rule=(other) policy= outcome=ok 1",
		"headgate_policy_remaining_units domain= rule=(other) policy= 1")
	if n := strings.Count(c.text(), "headgate_policy_limit_units "); n > maxPolicies+1 {
		t.Errorf("%d series", n)
	}
	k, _, _ := strings.Cut(byUser, ", {key: user")
	c.loadList(k)
	c.wantNo("rule=user")
	late.record(tallyOf(OutcomeOK, 1, 1, 2))
	c.want("headgate_policy_decisions_total domain=shop rule=k policy=k:late outcome=ok 1")
	c.loadList("{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}")
	c.wantNo("k:late")
	c.load("domain: shop")
	c.none()
}

// BenchmarkCount is what a decision costs that is counted, by its rule and its values.
func BenchmarkCount(b *testing.B) {
	set := mustLoad(new(testing.T), shop)
	m := NewMetrics()
	rules, _ := newRuleset(set, nil, &Config{Caps: modelCaps(true), Encoder: unsent{}, Metrics: m})
	b.ReportAllocs()
	v := rules.views[set.Rules()[1].ID]
	for b.Loop() {
		v.counter(m, set, nil, OutcomeOK).Inc()
	}
}

// TestRemainingUnitsAreTheLowestOfLately: what is left is the lowest of the last one to two minutes,
// whatever scrapes there are, and nothing if nothing was decided.
func TestRemainingUnitsAreTheLowestOfLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lowest
		want := func(remaining int64) {
			t.Helper()
			got, ok := l.get(time.Now())
			if ok != (remaining >= 0) || ok && got.Remaining != remaining {
				t.Errorf("%v %v, want %d", got, ok, remaining)
			}
		}
		want(-1)
		l.note(time.Now(), Level{Remaining: 50, Limit: 100})
		l.note(time.Now(), Level{Remaining: 40, Limit: 1000}) // a smaller part
		l.note(time.Now(), Level{Remaining: 30, Limit: 100})
		want(40)
		time.Sleep(lowestOver)
		want(40)
		l.note(time.Now(), Level{Remaining: 90, Limit: 100})
		want(40)
		time.Sleep(lowestOver)
		want(90)
		time.Sleep(lowestOver)
		want(-1)
		l.note(time.Now(), Level{Remaining: 0, Limit: 100})
		time.Sleep(time.Hour)
		want(-1)
		l.note(time.Now(), Level{Remaining: 10, Limit: 100})
		l.note(time.Now().Add(-time.Hour), Level{Remaining: 20, Limit: 100}) // the clock stepped back
		l.note(time.Now().Add(-time.Hour), Level{Remaining: 30, Limit: 100})
		if got, ok := l.get(time.Now().Add(-time.Hour)); !ok || got.Remaining != 20 {
			t.Errorf("after a step of the clock: %v %v", got, ok)
		}
	})
}
