package descriptors_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// perSecond is a limit of n in a second.
func perSecond(n int64) []descriptors.LimitSpec {
	return []descriptors.LimitSpec{
		{Alone: true, Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: n, Window: time.Second}}}
}

// TestBuildNeedsNoText: rules of a source that has no files are matched like
// those of a file, and say where they are from.
func TestBuildNeedsNoText(t *testing.T) {
	row := func(n int) descriptors.Place { return descriptors.Place{File: "policies", Line: n} }
	leaf := &descriptors.RuleSpec{Key: "user", Body: descriptors.Body{Limits: perSecond(2), Place: row(2)}}
	spec := &descriptors.Spec{Hash: 7, Domains: []*descriptors.DomainSpec{
		{Name: "shop", Rules: []*descriptors.RuleSpec{
			{Key: "tenant", Value: "a*", ShareThreshold: true, Rules: []*descriptors.RuleSpec{leaf},
				Body: descriptors.Body{Place: row(1)}},
		}},
		{Name: "shop", Resources: []*descriptors.ResourceSpec{{
			Method: "GET", Path: "/users/{id}",
			Matcher: descriptors.Matcher{
				PathParams: map[string]descriptors.Criterion{"id": {Operator: "NotEqualTo", Value: "me"}}},
			Body: descriptors.Body{Limits: perSecond(3), Place: row(3)},
		}}},
	}}
	var problems descriptors.Problems
	set := descriptors.Build(spec, &problems)
	if set == nil || len(problems.Sorted()) > 0 || set.Hash() != 7 {
		t.Fatal(problems.Sorted())
	}
	for _, tc := range []struct {
		entries []descriptors.Entry
		line    int
	}{
		{[]descriptors.Entry{{"tenant", "acme"}, {"user", "u"}}, 2},
		{[]descriptors.Entry{{"method", "GET"}, {"path", "/users/7"}}, 3},
		{[]descriptors.Entry{{"method", "GET"}, {"path", "/users/me"}}, 0},
	} {
		var m descriptors.Match
		set.Match("shop", tc.entries, &m)
		if m.Rule == nil || tc.line == 0 {
			if m.Rule != nil || tc.line > 0 {
				t.Errorf("%v: %+v", tc.entries, m.Rule)
			}
			continue
		}
		if file, line := m.Rule.Place(); file != "policies" || line != tc.line {
			t.Errorf("%v: %s:%d", tc.entries, file, line)
		}
		if tc.line == 2 && m.Group != groupOf("shop", tc.entries[0].Key, "a*", tc.entries[1].Key, "u") {
			t.Errorf("%v: %q", tc.entries, m.Group)
		}
	}
}

// groupOf is the counters' group of a domain and entries.
func groupOf(parts ...string) string {
	var b []byte
	for _, p := range parts {
		b = limit.AppendPart(b, p)
	}
	return limit.MakeGroup(b)
}

// TestBuildReportsPlaces of what is wrong between rules, and has no Set then.
func TestBuildReportsPlaces(t *testing.T) {
	at := func(line int) descriptors.Body { return descriptors.Body{Place: descriptors.Place{"db", line, 4}} }
	for _, tc := range []struct {
		domain descriptors.DomainSpec
		want   string
	}{
		{descriptors.DomainSpec{Rules: []*descriptors.RuleSpec{{Key: "a", Body: at(1)}, {Key: "a", Body: at(2)}}},
			"db:2:4: duplicate rule \"a\", first in db:1 (at d/a)\n"},
		{descriptors.DomainSpec{Place: at(1).Place}, "db:1:4: the domain is empty\n"},
		{descriptors.DomainSpec{Rules: []*descriptors.RuleSpec{{Body: at(1)}}}, "db:1:4: the rule's key is empty (at d/?)\n"},
		{descriptors.DomainSpec{Resources: []*descriptors.ResourceSpec{{Path: "/a", Body: at(1)}, {Path: "/a", Body: at(2)}}},
			"db:2:4: duplicate resource *:/a, first in db:1 (at d/*:/a)\n"},
		{descriptors.DomainSpec{Resources: []*descriptors.ResourceSpec{{Path: "/a", Body: at(1),
			Matcher: descriptors.Matcher{PathParams: map[string]descriptors.Criterion{"id": {}}}}}},
			"db:1:4: the path has no parameter {id} (at d/*:/a)\n"},
		{descriptors.DomainSpec{Resources: []*descriptors.ResourceSpec{{Path: "/a", Body: at(1),
			Matcher: descriptors.Matcher{QueryParams: map[string]descriptors.Criterion{"q": {Operator: "Like"}}}}}},
			"db:1:4: query parameter q: operator \"Like\" is unknown; it must be EqualTo, NotEqualTo, Contains, NotContains, " +
				"Matches, NotMatches, Exists or NotExists (at d/*:/a)\n"},
		{descriptors.DomainSpec{Resources: []*descriptors.ResourceSpec{{Path: "/a", Body: at(1),
			Matcher: descriptors.Matcher{AllOf: []descriptors.Condition{{Expression: "${context.request.body}"}}}}}},
			"db:1:4: an expression over the request's body can never be matched: Envoy asks before it has read the request's " +
				"body; match on headers, query or pathParams instead (at d/*:/a)\n"},
	} {
		if tc.domain.Place.Line == 0 {
			tc.domain.Name = "d"
		}
		var problems descriptors.Problems
		set := descriptors.Build(&descriptors.Spec{Domains: []*descriptors.DomainSpec{&tc.domain}}, &problems)
		if got := lines(problems.Sorted()); set != nil || got != tc.want {
			t.Errorf("got  %swant %s", got, tc.want)
		}
	}
}

// TestBuildStopsAtTooManyRules that are few in memory: each is twice below the
// one above.
func TestBuildStopsAtTooManyRules(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a million rules")
	}
	var below []*descriptors.RuleSpec
	for range 30 {
		below = []*descriptors.RuleSpec{{Key: "a", Rules: below}, {Key: "b", Rules: below}}
	}
	var problems descriptors.Problems
	set := descriptors.Build(&descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: below}}}, &problems)
	if got := problems.Sorted(); set != nil || len(got) != 1 ||
		!strings.Contains(got[0].Message, "more than 1000000 rules") {
		t.Errorf("%d problems: %.500v", len(got), got)
	}
}

// TestBuildReportsManyProblemsQuickly: deep rules with long keys and many problems
// each take time and memory in proportion to what is shown.
func TestBuildReportsManyProblemsQuickly(t *testing.T) {
	r := &descriptors.RuleSpec{Key: strings.Repeat("k", 500)}
	for i := range 1000 {
		r.Limits = append(r.Limits, descriptors.LimitSpec{Name: fmt.Sprint(i)}) // without figures
	}
	r.Rules = []*descriptors.RuleSpec{r} // without an end
	var problems descriptors.Problems
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	set := descriptors.Build(
		&descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: []*descriptors.RuleSpec{r}}}}, &problems)
	runtime.ReadMemStats(&after)
	got := problems.Sorted()
	if set != nil || len(got) != 10_000 {
		t.Errorf("%d problems", len(got))
	}
	for _, p := range got {
		if len(p.Path) > 3000 {
			t.Fatalf("a path has %d bytes", len(p.Path))
		}
	}
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 1024 {
		t.Errorf("Build has allocated %d MiB", used)
	}
}
