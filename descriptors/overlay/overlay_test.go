package overlay

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

func TestPatternsMatchStars(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "a/b.c", true}, {"a", "a", true}, {"a", "ab", false}, {"", "", true}, {"", "a", false},
		{"a*", "a", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false}, {"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "a.b.c", true}, {"a*b*c", "acb", false}, {"*rule-0*", "x.rule-0-match-0", true}, {"**", "x", true},
		{"*ab", "aab", true}, {"a*ab*b", "aabb", true}, {"a*ab*b", "aab", false},
	} {
		if got := match(c.pattern, c.text); got != c.want {
			t.Errorf("%q and %q: %v", c.pattern, c.text, got)
		}
	}
	long := strings.Repeat("a", 1<<16)
	began := time.Now()
	match(strings.Repeat("*a", 2000)+"b", long)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a pattern of many * takes %v", took)
	}
}

func rule(key string, most int64, below ...*descriptors.RuleSpec) *descriptors.RuleSpec {
	r := &descriptors.RuleSpec{Key: key, Rules: below}
	r.Limits = []descriptors.LimitSpec{{Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: most, Window: time.Minute},
		Alone: true}}
	return r
}

// laid compiles a domain under an overlay and returns what /rlconfig shows.
func laid(t *testing.T, d *descriptors.DomainSpec, entries ...Entry) (string, []descriptors.Problem) {
	t.Helper()
	o := New(entries)
	r := o.Apply(d)
	var problems descriptors.Problems
	set := descriptors.Build(&descriptors.Spec{Domains: []*descriptors.DomainSpec{r.Domain}}, &problems)
	if set == nil {
		t.Fatal(problems.Sorted())
	}
	var b strings.Builder
	if err := set.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String(), append(r.Warnings, o.Unused([]Result{r})...)
}

// Entries change what they match, and no more; of two the later one wins; nothing of the
// domain that was sent changes.
func TestEntriesChangeWhatTheyMatch(t *testing.T) {
	d := &descriptors.DomainSpec{Name: "default/eg/http", Rules: []*descriptors.RuleSpec{
		rule("a", 10, rule("b", 20)), rule("c", 30),
	}}
	plain := "default/eg/http.a: unit=MINUTE requests_per_unit=10, shadow_mode: false\n" +
		"default/eg/http.a.b: unit=MINUTE requests_per_unit=20, shadow_mode: false\n" +
		"default/eg/http.c: unit=MINUTE requests_per_unit=30, shadow_mode: false\n"
	change := func(from, to string) string { return strings.Replace(plain, from, to, 1) }
	for name, c := range map[string]struct {
		entries []Entry
		want    string
	}{
		"none":           {nil, plain},
		"another domain": {[]Entry{{Domain: "x*", Rule: "*", Multiplier: 2}}, plain},
		"another rule":   {[]Entry{{Domain: "*", Rule: "b", Multiplier: 2}}, plain},
		"15 minutes": {[]Entry{{Domain: "default/*", Rule: "a.*", Multiplier: 15}},
			change("requests_per_unit=20", "requests_per_unit=20 unit_multiplier=15")},
		"a window": {[]Entry{{Domain: "*", Rule: "c", Window: 90 * time.Second}},
			change("unit=MINUTE requests_per_unit=30", "unit=SECOND requests_per_unit=30 unit_multiplier=90")},
		"an algorithm": {[]Entry{{Domain: "*", Rule: "c", Algorithm: limit.SlidingWindow}},
			change("unit=MINUTE requests_per_unit=30", "algorithm=sliding_window limit=30 window=1m")},
		"a bucket": {[]Entry{{Domain: "*", Rule: "c", Algorithm: limit.TokenBucket, Burst: 5}},
			change("unit=MINUTE requests_per_unit=30", "algorithm=token_bucket rate=30/1m burst=5")},
		"policies": {[]Entry{{Domain: "*", Rule: "c", OnBackendError: descriptors.FailLocal,
			OnOverload: descriptors.FailError, LocalShare: 7}},
			change("requests_per_unit=30, shadow_mode: false",
				"requests_per_unit=30, shadow_mode: false, local_share: 7, on_backend_error: local, on_overload: error")},
		"a share of the traffic": {[]Entry{{Domain: "*", Rule: "c", LocalShare: limit.AutoShare}},
			change("requests_per_unit=30, shadow_mode: false",
				"requests_per_unit=30, shadow_mode: false, local_share: auto")},
		"no share": {[]Entry{{Domain: "*", Rule: "c", LocalShare: limit.NoShare}},
			change("requests_per_unit=30, shadow_mode: false",
				"requests_per_unit=30, shadow_mode: false, local_share: none")},
		"a choice": {[]Entry{{Domain: "*", Rule: "c", Choose: "model", Prefer: 2}, {Domain: "*", Rule: "c", WarnAt: 80}},
			change("requests_per_unit=30, shadow_mode: false",
				"requests_per_unit=30, shadow_mode: false, warn_at: 80%, choose: model, prefer: 2")},
		"the later one": {[]Entry{{Domain: "*", Rule: "c", Window: time.Hour, LocalShare: 7},
			{Domain: "*", Rule: "c", Window: time.Second}},
			change("unit=MINUTE requests_per_unit=30, shadow_mode: false",
				"unit=SECOND requests_per_unit=30, shadow_mode: false, local_share: 7")},
	} {
		if got, _ := laid(t, d, c.entries...); got != c.want {
			t.Errorf("%s: have\n%swant\n%s", name, got, c.want)
		}
	}
	if got, _ := laid(t, d); got != plain {
		t.Errorf("the domain has changed:\n%s", got)
	}
}

// An entry that makes no limit of a rule leaves it alone, and one that matches nothing is
// warned of, both with the entry's place.
func TestEntriesThatDoNothing(t *testing.T) {
	d := &descriptors.DomainSpec{Name: "d", Rules: []*descriptors.RuleSpec{rule("a", 10), rule("none", 0)}}
	at := descriptors.Place{File: "o.yaml", Line: 3, Col: 5}
	for name, c := range map[string]struct {
		entry Entry
		want  string
	}{
		"a bucket of nothing": {Entry{Domain: "d", Rule: "none", Algorithm: limit.TokenBucket},
			"o.yaml:3:5: warning: the limit stays as it was: "},
		"too long": {Entry{Domain: "d", Rule: "a", Multiplier: 1 << 40}, "window"},
		"share":    {Entry{Domain: "d", Rule: "a", LocalShare: 11}, "local_share 11 is more"},
		"no rule": {Entry{Domain: "d", Rule: "b", Window: time.Second},
			`o.yaml:3:5: warning: the entry has no effect: no limit of a domain "d" has a path "b"`},
		"no domain": {Entry{Domain: "e", Rule: "a", Window: time.Second}, "has no effect"},
	} {
		c.entry.Place = at
		got, problems := laid(t, d, c.entry)
		if len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems[0].String(), c.want) {
			t.Errorf("%s: %v, want %q", name, problems, c.want)
		}
		if !strings.Contains(got, "d.a: unit=MINUTE requests_per_unit=10,") ||
			!strings.Contains(got, "d.none: unit=MINUTE requests_per_unit=0,") {
			t.Errorf("%s: have\n%s", name, got)
		}
	}
}

func TestSumIsOfWhatEntriesSay(t *testing.T) {
	e := Entry{Domain: "d", Rule: "a", LocalShare: 11}
	moved, other := e, e
	moved.Place.Line, other.LocalShare = 7, 12
	a, b, c := New([]Entry{e}).Sum(), New([]Entry{moved}).Sum(), New([]Entry{other}).Sum()
	if string(a) != string(b) || string(a) == string(c) {
		t.Error("the sum depends on the place, or not on what the entry says")
	}
}
