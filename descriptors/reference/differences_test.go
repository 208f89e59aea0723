package reference

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// rules makes rules with a limit of "key", "key=value" or "key:flags".
func rules(list ...string) (out []*descriptors.RuleSpec) {
	for i, text := range list {
		r := &descriptors.RuleSpec{}
		r.Key, r.Value, _ = strings.Cut(text, "=")
		r.Place = descriptors.Place{File: "f", Line: i + 1}
		r.Limits = []descriptors.LimitSpec{{Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 1}}}
		out = append(out, r)
	}
	return out
}

// TestRulesThatShareCounters: of two rules of a level it is known whether the reference
// counts values of both under one name.
func TestRulesThatShareCounters(t *testing.T) {
	for _, c := range []struct {
		list []string
		want bool
	}{
		{[]string{"a", "a_b"}, true},
		{[]string{"a_b", "a"}, true},
		{[]string{"a", "ab"}, false},
		{[]string{"a=x", "a_b"}, false},
		{[]string{"a=b_x", "a_b"}, true},
		{[]string{"a", "a_b=c"}, true},
		{[]string{"a=b", "a=c"}, false},
		{[]string{"a", "a=b"}, false},
	} {
		spec := &descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: rules(c.list...)}}}
		found := false
		for _, p := range Find(spec, false) {
			found = found || strings.Contains(p.Message, "the counters of key")
		}
		if found != c.want {
			t.Errorf("%v: %v, want %v", c.list, found, c.want)
		}
	}
}

// TestFindLooksBelow: rules deep in the tree are found, with their path.
func TestFindLooksBelow(t *testing.T) {
	top := rules("a")
	top[0].Rules = rules("b*=c")
	list := Find(&descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: top}}}, true)
	for _, p := range list {
		if p.Path == "d/a/b*_c" && strings.Contains(p.Message, `begin with "b"`) && p.Warning {
			return
		}
	}
	t.Errorf("%v", list)
}
