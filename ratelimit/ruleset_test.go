package ratelimit

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// TestRebuiltRulesKeepTheirViews: what is prepared of a rule is prepared once, however often the
// rules around it change.
func TestRebuiltRulesKeepTheirViews(t *testing.T) {
	rule := func(key string, most int64) *descriptors.RuleSpec {
		return &descriptors.RuleSpec{Key: key, Body: descriptors.Body{Limits: []descriptors.LimitSpec{
			{Alone: true, Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: most, Window: time.Hour}}}}}
	}
	var set *descriptors.Set
	h := setup(t, "domain: d\ndescriptors: [{key: a}]\n")
	put := func(rules ...*descriptors.RuleSpec) *ruleset {
		set = descriptors.Rebuild(set, &descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: rules}}}, new(descriptors.Problems))
		if err := h.SetRules(set); err != nil {
			t.Fatal(err)
		}
		return h.rules.Load()
	}
	a, b := rule("a", 2), rule("b", 2)
	first := put(a, b)
	second := put(rule("a", 1), b, rule("c", 3))
	for _, r := range set.Rules() {
		kept := first.view(r) != nil
		if kept != (r.Path == "b") || second.view(r) == nil || second.view(r).rule != r {
			t.Errorf("%s: kept: %t, %+v", r.Path, kept, second.view(r))
		}
	}
	for key, most := range map[string]int{"a": 1, "b": 2, "c": 3} {
		for i := range most + 1 {
			if over := h.ask(desc(key + "=x").withHits(1)).Statuses[0].OverLimit; over != (i == most) {
				t.Errorf("%s: call %d is refused: %t", key, i, over)
			}
		}
	}
}
