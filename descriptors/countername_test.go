package descriptors_test

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
)

// TestCountedFindsTheDescriptorOfAGroup, where a group tells it.
func TestCountedFindsTheDescriptorOfAGroup(t *testing.T) {
	s := mustLoad(t, `domain: d
descriptors:
  - {key: user, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: team, value: "a*", share_threshold: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - key: for
    descriptors: [{key: dest, choose: model, rate_limit: {unit: second, requests_per_unit: 1}}]
resources:
  - {path: /v1/pay, method: GET, rate_limit: {unit: second, requests_per_unit: 1}}
  - {name: shared, path: /v1/more, method: GET, rate_limit: {unit: second, requests_per_unit: 1}}
`)
	for _, c := range []struct {
		entries []descriptors.Entry
		name    string // "": the group does not tell
	}{
		{[]descriptors.Entry{{Key: "user", Value: "alice"}}, "d|user=alice"},
		{[]descriptors.Entry{{Key: "user", Value: strings.Repeat("x", 300)}}, ""},
		{[]descriptors.Entry{{Key: "team", Value: "abc"}}, "d|team=a*"},
		{[]descriptors.Entry{{Key: "for", Value: "u}"}, {Key: "dest", Value: "openai"}}, "d|for=u}|dest=openai"},
		{[]descriptors.Entry{{Key: "for", Value: strings.Repeat("x", 300)}, {Key: "dest", Value: "openai"}}, ""},
		{[]descriptors.Entry{{Key: "method", Value: "GET"}, {Key: "path", Value: "/v1/pay"}}, "d|method=GET|path=/v1/pay"},
		{[]descriptors.Entry{{Key: "method", Value: "GET"}, {Key: "path", Value: "/v1/more"}}, ""},
	} {
		var m descriptors.Match
		s.Match("d", c.entries, &m)
		if m.Rule == nil {
			t.Fatalf("no rule for %v", c.entries)
		}
		domain, entries, matches, ok := s.Counted(m.Group)
		if ok != (c.name != "") || ok && (!matches || descriptors.Name(domain, entries) != c.name) {
			t.Errorf("%v: group %q is that of %s %v, %v %v; want %s", c.entries, m.Group, domain, entries, matches, ok, c.name)
		}
	}
	if domain, entries, matches, ok := s.Counted("1:d4:gone1:x"); !ok || matches ||
		descriptors.Name(domain, entries) != "d|gone=x" {
		t.Errorf("a rule that is gone: %s %v %v %v", domain, entries, matches, ok)
	}
	for _, group := range []string{"", "=raw", "~d_user_a_", "ping", "1:d", "9:d1:a1:b", "-1:d1:a1:b",
		"1:d99999999999999999999:a", strings.Repeat("0:", 500)} {
		if domain, entries, matches, _ := s.Counted(group); matches {
			t.Errorf("%q is that of %s %v", group, domain, entries)
		}
	}
}
