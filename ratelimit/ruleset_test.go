package ratelimit

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
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
		set = descriptors.Rebuild(set, &descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: rules}}},
			new(descriptors.Problems))
		if err := h.SetRules(set); err != nil {
			t.Fatal(err)
		}
		return h.rules.Load()
	}
	a, b := rule("a", 2), rule("b", 2)
	first := put(a, b)
	second := put(rule("a", 1), b, rule("c", 3))
	for _, r := range set.Rules() {
		v := second.views[r.ID]
		kept := slices.Contains(first.views, v)
		if kept != (r.Path == "b") || v == nil || v.rule != r {
			t.Errorf("%s: kept: %t, %+v", r.Path, kept, v)
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

// Rules that come and go leave the views, and the longest lease, of those that are there.
func TestRulesetAfterManyChanges(t *testing.T) {
	r := random.Rand(t, 14)
	h := setup(t, "domain: d\ndescriptors: [{key: a}]\n")
	var set *descriptors.Set
	var rules []*descriptors.RuleSpec
	for n := range random.Times(300, 5000) {
		if len(rules) > 0 && r.IntN(2) == 0 {
			rules = slices.Delete(slices.Clone(rules), 0, 1+r.IntN(min(3, len(rules))))
		} else {
			s := &descriptors.RuleSpec{Key: fmt.Sprint("k", n), Body: descriptors.Body{Limits: []descriptors.LimitSpec{
				{Alone: true, Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Hour}}}}}
			if r.IntN(4) == 0 {
				s.Concurrency = &descriptors.ConcurrencySpec{LeaseTTL: time.Duration(1+r.IntN(9)) * time.Minute,
					Tiers: []descriptors.TierSpec{{Tier: descriptors.Tier{Threshold: 1, Status: 429}}}}
			}
			rules = append(slices.Clone(rules), s)
		}
		set = descriptors.Rebuild(set, &descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: rules}}},
			new(descriptors.Problems))
		if r.IntN(10) == 0 {
			continue // these rules are never in force
		}
		if err := h.SetRules(set); err != nil {
			t.Fatal(err)
		}
		got := h.rules.Load()
		there := 0
		for _, v := range got.views {
			if v != nil {
				there++
			}
		}
		for _, rule := range set.Rules() {
			if v := got.views[rule.ID]; v == nil || v.rule != rule {
				t.Fatalf("rule %s has the view %+v", rule.Path, v)
			}
		}
		if want := longestLease(set.Rules()); there != len(set.Rules()) || got.longest != want {
			t.Fatalf("%d views of %d rules; the longest lease is %v, want %v", there, len(set.Rules()), got.longest, want)
		}
	}
}

// Rules that are set at the same time take each other's place one after the other: no series of rules that are gone
// stay, and none are dropped twice.
func TestRulesThatAreSetAtTheSameTime(t *testing.T) {
	h := setup(t, fewKeys)
	var sets [8]*descriptors.Set
	for g := range sets {
		text := fmt.Sprintf("domain: d%d\ndescriptors:\n", g)
		for i := range 100 {
			text += fmt.Sprintf("- {key: k%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
		}
		sets[g] = mustLoad(t, text)
	}
	var setting sync.WaitGroup
	for _, set := range sets {
		setting.Go(func() {
			for range 100 {
				if err := h.SetRules(set); err != nil {
					t.Error(err)
				}
			}
		})
	}
	setting.Wait()
	if err := h.SetRules(new(descriptors.Set)); err != nil {
		t.Fatal(err)
	}
	room := &h.conf.Metrics.bounds.rules
	if all, more := room.Take(int(room.Most)), room.Take(1); !all || more {
		t.Errorf("without rules all series can be had: %v; and one more: %v", all, more)
	}
}
