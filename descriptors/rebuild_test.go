package descriptors_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// A changing is the rules of a source that changes some of them at a time.
type changing struct {
	*rand.Rand
	domains []*descriptors.DomainSpec
	next    int
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// rule makes a rule, with rules below it, that is mostly right.
func (c *changing) rule(depth int) *descriptors.RuleSpec {
	c.next++
	s := &descriptors.RuleSpec{Key: pick(c.Rand, "a", "b", "c", "a*"),
		Value: pick(c.Rand, "", "x", "y", "z*", "*", fmt.Sprint("v", c.IntN(9)))}
	s.Place = descriptors.Place{File: "f", Line: c.next}
	s.ShareThreshold = s.Value == "z*" && c.IntN(2) == 0
	s.ValueToMetric, s.DetailedMetric = c.IntN(9) == 0, c.IntN(9) == 0
	s.CountByValue = c.IntN(30) == 0
	for depth < 3 && c.IntN(2) == 0 {
		s.Rules = append(s.Rules, c.rule(depth+1))
	}
	if c.IntN(3) > 0 {
		l := descriptors.LimitSpec{Alone: true, Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 1 + c.Int64N(5),
			Window: time.Hour}}
		if c.IntN(5) == 0 {
			l.Alone, l.Name = false, fmt.Sprint("n", c.IntN(4))
			l.Replaces = []descriptors.Replaced{{Name: fmt.Sprint("n", c.IntN(4))}}
		}
		s.Limits = append(s.Limits, l)
	}
	if c.IntN(8) == 0 {
		s.Concurrency = &descriptors.ConcurrencySpec{LeaseTTL: time.Minute, Tiers: []descriptors.TierSpec{
			// which is a warning
			{Tier: descriptors.Tier{Threshold: 1, Status: 429}}, {Tier: descriptors.Tier{Threshold: 9, Status: 503}}}}
	}
	return s
}

// change makes other rules. What they share with those before stays the same pointer.
func (c *changing) change() {
	c.domains = slices.Clone(c.domains)
	i := c.IntN(len(c.domains))
	d := *c.domains[i]
	d.Rules = slices.Clone(d.Rules)
	c.domains[i] = &d
	at := c.IntN(len(d.Rules) + 1)
	switch n := c.IntN(10); {
	case n < 4 || len(d.Rules) == 0:
		d.Rules = slices.Insert(d.Rules, at, c.rule(1))
	case n < 6:
		d.Rules = slices.Delete(d.Rules, max(at-1, 0), max(at, 1))
	case n < 7: // from the other domain, or a duplicate
		other := c.domains[c.IntN(len(c.domains))]
		if len(other.Rules) > 0 {
			d.Rules = slices.Insert(d.Rules, at, other.Rules[c.IntN(len(other.Rules))])
		}
	case n < 8:
		c.Shuffle(len(d.Rules), func(i, j int) { d.Rules[i], d.Rules[j] = d.Rules[j], d.Rules[i] })
	case n < 9:
		d.Name = pick(c.Rand, "d", "e", "f")
	default:
		d.Resources = []*descriptors.ResourceSpec{{Path: "/p", Body: descriptors.Body{Limits: []descriptors.LimitSpec{
			{Alone: true, Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 5, Window: time.Hour}}}}}}
	}
}

// TestRebuildIsBuild compares sets that are made from the ones before with sets that are made
// from nothing.
func TestRebuildIsBuild(t *testing.T) {
	r := random.Rand(t, 12)
	for range random.Times(20, 500) {
		c := &changing{Rand: r, domains: []*descriptors.DomainSpec{{Name: "d"}, {Name: "e"}}}
		var set *descriptors.Set
		accepted := 0
		for range 60 {
			before := c.domains
			c.change()
			spec := &descriptors.Spec{Domains: c.domains, Hash: uint64(c.next)}
			var got, want descriptors.Problems
			made, fresh := descriptors.Rebuild(set, spec, &got), descriptors.Build(spec, &want)
			if g, w := lines(got.Sorted()), lines(want.Sorted()); g != w || (made == nil) != (fresh == nil) {
				t.Fatalf("rebuilt: %t, built: %t; problems:\n%swant:\n%s", made != nil, fresh != nil, g, w)
			}
			if made == nil {
				c.domains = before
				continue
			}
			sameSet(t, c.Rand, made, fresh)
			sharesRules(t, made)
			sameChanges(t, made, set)
			set, accepted = made, accepted+1
		}
		if accepted < 10 {
			t.Fatalf("only %d of 60 changes are accepted", accepted)
		}
	}
}

// sameChanges compares what Since says with the rules of both sets.
func sameChanges(t *testing.T, set, old *descriptors.Set) {
	t.Helper()
	added, gone, ok := set.Since(old)
	if old == nil || !ok {
		if old != nil && len(set.Rules()) > 0 && slices.Contains(old.Rules(), set.Rules()[0]) {
			t.Fatal("Since does not know a set that has shared rules")
		}
		return
	}
	without := func(a, b []*descriptors.Rule) (list []*descriptors.Rule) {
		for _, r := range a {
			if !slices.Contains(b, r) {
				list = append(list, r)
			}
		}
		return list
	}
	if !slices.Equal(added, without(set.Rules(), old.Rules())) || !slices.Equal(gone, without(old.Rules(), set.Rules())) {
		t.Fatalf("%d rules are new and %d are gone, of %d and %d", len(added), len(gone), len(set.Rules()), len(old.Rules()))
	}
	if _, _, ok := set.Since(set); ok {
		t.Fatal("a set was made of itself")
	}
}

// sameSet compares what sets match.
func sameSet(t *testing.T, r *rand.Rand, got, want *descriptors.Set) {
	t.Helper()
	var g, w bytes.Buffer
	if err := got.Dump(&g); err != nil {
		t.Fatal(err)
	}
	if err := want.Dump(&w); err != nil {
		t.Fatal(err)
	}
	if g.String() != w.String() || got.Hash() != want.Hash() || !slices.Equal(got.Domains(), want.Domains()) {
		t.Fatalf("%s\nwant:\n%s", g.String(), w.String())
	}
	for range 50 {
		var entries []descriptors.Entry
		for range 1 + r.IntN(3) {
			entries = append(entries, descriptors.Entry{Key: pick(r, "a", "b", "c", "aa"),
				Value: pick(r, "x", "y", "z1", "v1", "v2", "?")})
		}
		var a, b descriptors.Match
		domain := pick(r, "d", "e", "f")
		got.Match(domain, entries, &a)
		want.Match(domain, entries, &b)
		if a.Domain != b.Domain || a.Group != b.Group || (a.Rule == nil) != (b.Rule == nil) {
			t.Fatalf("%s %v: %+v, want %+v", domain, entries, a, b)
		}
		if a.Rule != nil &&
			(a.Rule.Path != b.Rule.Path || got.MetricLabel(a.Rule, entries) != want.MetricLabel(b.Rule, entries)) {
			t.Fatalf("%s %v: %+v, want %+v", domain, entries, a.Rule, b.Rule)
		}
	}
}

// sharesRules checks the IDs of a set: one for each rule, and a rule that both sets have keeps its
// own.
func sharesRules(t *testing.T, made *descriptors.Set) {
	t.Helper()
	rules := make([]*descriptors.Rule, made.IDs())
	for _, r := range made.Rules() {
		if r.ID < 0 || r.ID >= len(rules) || rules[r.ID] != nil {
			t.Fatalf("the ID %d of %s is outside of %d, or that of another rule", r.ID, r.Path, len(rules))
		}
		rules[r.ID] = r
	}
	if most := 2*len(made.Rules()) + 2000; made.IDs() > most {
		t.Errorf("%d IDs for %d rules", made.IDs(), len(made.Rules()))
	}
}

// TestRebuildCompilesWhatHasChanged: rules that stay are the same, whatever comes and goes around
// them.
func TestRebuildCompilesWhatHasChanged(t *testing.T) {
	leaf := func(key string) *descriptors.RuleSpec {
		return &descriptors.RuleSpec{Key: key, Body: descriptors.Body{Limits: []descriptors.LimitSpec{
			{Alone: true, Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 5, Window: time.Hour}}}}}
	}
	tree := func(key string) *descriptors.RuleSpec {
		return &descriptors.RuleSpec{Key: key, Rules: []*descriptors.RuleSpec{leaf("x"), leaf("y")}}
	}
	a, b, c := tree("a"), tree("b"), tree("c")
	var set *descriptors.Set
	build := func(rules ...*descriptors.RuleSpec) map[string]*descriptors.Rule {
		set = descriptors.Rebuild(set, &descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: rules}}},
			new(descriptors.Problems))
		byPath := map[string]*descriptors.Rule{}
		for _, r := range set.Rules() {
			byPath[r.Path] = r
		}
		return byPath
	}
	first := build(a, b)
	second := build(c, b, tree("a"))
	if second["b.x"] != first["b.x"] || second["b.y"] != first["b.y"] {
		t.Error("rules that have not changed are compiled again")
	}
	if second["a.x"] == first["a.x"] || second["c.x"] == nil {
		t.Error("rules that have changed are not compiled")
	}
	if set.IDs() != 6 {
		t.Errorf("six rules have %d IDs", set.IDs())
	}
	if third := build(b); third["b.y"] != first["b.y"] || len(third) != 2 {
		t.Errorf("%v", third)
	}
}
