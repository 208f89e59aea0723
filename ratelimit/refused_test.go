package ratelimit

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

const referenceRules = `
domain: d
descriptors:
  - {key: few, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
`

// asReference has a service answer as `headgate ratelimit` does.
func asReference(c *Config) {
	c.AsReference, c.HideRule, c.Charge, c.Overflow = true, true, descriptors.ChargeEach, descriptors.OverflowSaturate
}

// A question of no hits passes while the limit is not exceeded, and is over once somebody was refused, until the window
// ends. Without AsReference it is over when nothing is left.
func TestAQuestionPassesUntilSomebodyWasRefused(t *testing.T) {
	ask := desc("few=a").withHits(0)
	h := setup(t, referenceRules, asReference)
	h.want(h.ask(desc("few=a").withHits(3)), "OK: ok/0")
	h.want(h.ask(ask), "OK: ok/0")
	h.want(h.ask(ask), "OK: ok/0")
	h.want(h.ask(desc("few=a").withHits(1)), "OVER: over/0")
	h.want(h.ask(ask), "OVER: over/0")
	h.want(h.ask(desc("few=b").withHits(0)), "OK: ok/3")
	h.want(h.ask(desc("few=b").withHits(10)), "OVER: over/0") // a report that uses it up, and more
	h.want(h.ask(desc("few=b").withHits(0)), "OVER: over/0")
	h.want(h.ask(desc("none=a").withHits(0)), "OVER: over/0")
	h.now = h.now.Add(time.Hour)
	h.want(h.ask(ask), "OK: ok/3")

	h = setup(t, referenceRules)
	h.want(h.ask(desc("few=a").withHits(3)), "OK: ok/0")
	h.want(h.ask(ask), "OVER: over/0")
}

// An unlimited rule is no quota with room; a descriptor without a rule is one. What other descriptors were charged when
// all quotas are spent stays.
func TestUnlimitedRulesAreNoQuotas(t *testing.T) {
	quotas := func(c *Config) { c.QuotaMode = true }
	h := setup(t, referenceRules, asReference, quotas)
	h.ask(desc("few=a").withHits(4))
	h.want(h.ask(desc("free=x"), desc("few=a")), "OVER: ok/unlimited over/0")
	h.want(h.ask(desc("unknown=x"), desc("few=a")), "OK: ok over/0")
	h.ask(desc("few=b").withHits(3))
	h.want(h.ask(desc("few=b"), desc("few=a")), "OVER: over/0 over/0")

	h = setup(t, referenceRules, quotas)
	h.ask(desc("few=a").withHits(3))
	h.want(h.ask(desc("free=x"), desc("few=a")), "OK: ok/unlimited over/0")
}

// With charge all_or_nothing a refused request charges no limit that has room, also for hits that it names, but uses up
// the one that refuses.
func TestNamedHitsBesideARefusal(t *testing.T) {
	h := setup(t, referenceRules, asReference, func(c *Config) { c.Charge = descriptors.ChargeAllOrNothing })
	h.want(h.askDomain("d", 2, desc("many=a"), desc("few=a")), "OK: ok/18 ok/1")
	h.want(h.askDomain("d", 2, desc("many=a"), desc("few=a")), "OVER: ok/18 over/0")
	h.want(h.askDomain("d", 1, desc("many=a"), desc("few=a")), "OVER: ok/18 over/0")
	h.want(h.ask(desc("many=a")), "OK: ok/17")

	h = setup(t, referenceRules, asReference)
	h.want(h.askDomain("d", 4, desc("many=a"), desc("few=a")), "OVER: ok/16 over/0")
}

// A refusal does not say which rule it is by.
func TestRuleIsHidden(t *testing.T) {
	for hide, want := range map[bool]bool{false: true, true: false} {
		h := setup(t, referenceRules, func(c *Config) { c.HideRule = hide })
		r := h.ask(desc("none=a"))
		var all strings.Builder
		for _, m := range r.metadata {
			all.Write(m)
		}
		if got := strings.Contains(all.String(), "d/none"); got != want || !r.OverLimit {
			t.Errorf("hidden %v: %q", hide, all.String())
		}
	}
}

// Keys that are refused take no more memory than so many.
func TestRefusedKeysAreBounded(t *testing.T) {
	r := newRefusedKeys()
	l, err := limit.New(limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	op := limit.Op{Limit: l, Cost: 1}
	for i := range maxRefusedKeys + 1000 {
		op.Key.Group = strconv.Itoa(i)
		if out := (limit.Outcome{Reset: time.Hour}); r.knows(&op, &out, start2026) || out.Admitted {
			t.Fatalf("key %d is known", i)
		}
	}
	if len(r.until) != maxRefusedKeys {
		t.Errorf("%d keys", len(r.until))
	}
	if !r.knows(&op, &limit.Outcome{Reset: time.Hour}, start2026) {
		t.Error("the last key is not known")
	}
}
