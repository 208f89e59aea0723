package descriptors_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
)

func TestResourceKey(t *testing.T) {
	auth := map[string]descriptors.Criterion{"Authorization": {Operator: "equals", Value: "token"}}
	header := map[string]descriptors.Criterion{"authorization": auth["Authorization"]} // as Build passes its name on
	for _, tc := range []struct {
		method, name string
		m            *descriptors.Matcher
		length       int
		want         string // hashes: of "6:header1:113:authorization6:equals5:token" and the like
	}{
		{"GET", "/api/users", &descriptors.Matcher{}, 0, "GET:/api/users"},
		{"", "/api/users", &descriptors.Matcher{}, 0, "*:/api/users"},
		{"GET", "", &descriptors.Matcher{}, 0, "GET:*"},
		{"POST", "getUserDetails", &descriptors.Matcher{SOAPAction: "urn:get"}, 0, "POST:getUserDetails:2e493a09"},
		{"GET", "/api/users", &descriptors.Matcher{RequestHeaders: header}, 0, "GET:/api/users:79364071"},
		{"GET", "/api/users", &descriptors.Matcher{RequestHeaders: header}, 64,
			"GET:/api/users:793640718fbc5a287ebf155b6bfe3a51b9bab58ae3b9d1b8779386eb8e41286b"},
		{"GET", "/api/users", &descriptors.Matcher{QueryParams: auth}, 8, "GET:/api/users:6e471cb0"},
		{"GET", "/api/users", &descriptors.Matcher{
			RequestHeaders: header, QueryParams: auth, PathParams: auth,
			AllOf:      []descriptors.Condition{{"a", descriptors.Criterion{Operator: "gt", Value: "1"}}},
			AnyOf:      []descriptors.Condition{{"b", descriptors.Criterion{Operator: "lt", Value: "2"}}},
			SOAPAction: "s", Binding: "b",
		}, 16, "GET:/api/users:73bdf127460ebf95"},
	} {
		got, err := descriptors.ResourceKey(tc.method, tc.name, tc.m, tc.length)
		if err != nil || got != tc.want {
			t.Errorf("got %s, want %s (%v)", got, tc.want, err)
		}
	}
}

// TestResourceKeyIgnoresWriting: how a matcher is written down does not count.
func TestResourceKeyIgnoresWriting(t *testing.T) {
	key := func(m descriptors.Matcher) string {
		k, err := descriptors.ResourceKey("GET", "/", &m, 64)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	many := map[string]descriptors.Criterion{}
	for i := range 20 {
		many[fmt.Sprint("p", i)] = descriptors.Criterion{Operator: "", Value: fmt.Sprint(i)}
	}
	want := key(descriptors.Matcher{QueryParams: many})
	for range 50 {
		if key(descriptors.Matcher{QueryParams: maps.Clone(many)}) != want {
			t.Fatal("the order of a map counts")
		}
	}
	two := []descriptors.Condition{{"a", descriptors.Criterion{Operator: "", Value: "1"}},
		{"b", descriptors.Criterion{Operator: "", Value: "2"}}}
	back := slices.Clone(two)
	slices.Reverse(back)
	if key(descriptors.Matcher{AllOf: two}) != key(descriptors.Matcher{AllOf: back}) {
		t.Error("the order of conditions counts")
	}
	var resources []string
	for _, written := range []string{"{method: GET, path: /a, match: {headers: {Authorization: x}}}",
		"{method: get, path: /a, match: {headers: {authorization: {value: x, operator: EqualTo}}}}"} {
		rules := mustLoad(t, "domain: d\nresources:\n  - "+written+"\n").Rules()
		resources = append(resources, rules[0].Resource)
	}
	if resources[0] != resources[1] {
		t.Errorf("keys %q: the case of methods and header names, or an operator that is implied, counts", resources)
	}
}

// TestResourceKeyTellsApart: matchers that upstream's joining confuses.
func TestResourceKeyTellsApart(t *testing.T) {
	one := func(name, operator, value string) map[string]descriptors.Criterion {
		return map[string]descriptors.Criterion{name: {Operator: operator, Value: value}}
	}
	keys := map[string]int{}
	for i, m := range []descriptors.Matcher{
		{RequestHeaders: one("a", "b", "c")}, {QueryParams: one("a", "b", "c")},
		{PathParams: one("a", "b", "c")}, {RequestHeaders: one("a", "bc", "")}, {RequestHeaders: one("ab", "", "c")},
		{RequestHeaders: one("a", "", "")}, {QueryParams: one("a", "", "")},
		{AllOf: []descriptors.Condition{{Expression: "a"}}}, {AnyOf: []descriptors.Condition{{Expression: "a"}}},
		{AnyOf: []descriptors.Condition{{Expression: "a"}, {Expression: "a"}}},
		{SOAPAction: "a"}, {Binding: "a"},
	} {
		k, err := descriptors.ResourceKey("GET", "/", &m, 64)
		if err != nil {
			t.Fatal(err)
		}
		if j, ok := keys[k]; ok {
			t.Errorf("matchers %d and %d have the same key", j, i)
		}
		keys[k] = i
	}
}

func TestResourceKeyErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		m      *descriptors.Matcher
		length int
		want   string
	}{
		{"/", &descriptors.Matcher{}, 65, "outside 1 to 64"},
		{"/", &descriptors.Matcher{}, -1, "outside 1 to 64"},
		{strings.Repeat("n", 2000), &descriptors.Matcher{}, 0, "at most 1024"},
	} {
		if _, err := descriptors.ResourceKey("GET", tc.name, tc.m, tc.length); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}
