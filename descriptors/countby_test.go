package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// limited writes resources with five requests a minute.
func limited(top string, resources ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: d\n%s\nresources:\n", top)
	for _, r := range resources {
		fmt.Fprintf(&b, "- {%s, rate_limit: {unit: minute, requests_per_unit: 5}}\n", r)
	}
	return b.String()
}

// groupFor returns the counters' group of a request, "-" if no rule is for it.
func groupFor(s *descriptors.Set, request string) string {
	var m descriptors.Match
	s.Match("d", asks(request), &m)
	if m.Rule == nil {
		return "-"
	}
	return m.Group
}

// TestSpellingsOfAPathCountTogetherForAClient, and never for another.
func TestSpellingsOfAPathCountTogetherForAClient(t *testing.T) {
	spellings := []string{"/login", "/login/", "/login;a", "/login;a=b/", "/login%2f", "//login", "/x/../login",
		"/./login",
		"/login?x=1", "/%6cogin", "/login#x", "/login%3bx", "/login%00.html", "\\login", "/login%252f", "/l%C1%AFgin"}
	cased := []string{"/LOGIN", "/Login;a", "/lOgIn/", "/LOGIN%2F", "/LOG%49N", "/LOGıN"[:4] + "IN", "/%4cogin"}
	for _, top := range []string{"", "paths: any_case"} {
		s := mustLoad(t, limited(top, "method: POST, path: /login, by: [remote_address]"))
		want := groupFor(s, "POST /login remote_address=10.0.0.1")
		for _, path := range spellings {
			if got := groupFor(s, "POST "+path+" remote_address=10.0.0.1"); got != want {
				t.Errorf("%s (%s): the group is %s, want %s", path, top, got, want)
			}
			if got := groupFor(s, "POST "+path+" remote_address=10.0.0.2"); got == want || got == "-" {
				t.Errorf("%s (%s): another client has the group %s", path, top, got)
			}
		}
		for _, path := range cased {
			got := groupFor(s, "POST "+path+" remote_address=10.0.0.1")
			if same := got == want; same != (top != "") {
				t.Errorf("%s (%s): the group is %s", path, top, got)
			}
		}
	}
}

// TestAnyCase: of all kinds of paths; what parameters are compared with keeps its case.
func TestAnyCase(t *testing.T) {
	s := mustLoad(t, limited("paths: any_case", "path: /Api/Users", "path: '/Api/{Id}/x', match: {pathParams: {Id: Bob}}",
		"path: '/Api/{name}/x'", "path: '/Pre/{t}/*'", "path: '~^/V[0-9]+/é'", "path: /ſtraßeK"))
	for path, want := range map[string]string{
		"/api/users": "*:/Api/Users", "/API/USERS/": "*:/Api/Users", "/pRE/A/b": "*:/Pre/{t}/*", "/v1/É": "*:~^/V[0-9]+/é",
		"/API/bob/X": "*:/Api/{name}/x", "/straßek": "*:/ſtraßeK", "/other": "-", "/api/users;A": "*:/Api/Users",
	} {
		if got := resourceFor(s, "GET "+path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if got := resourceFor(s, "GET /api/Bob/x"); !strings.HasPrefix(got, "*:/Api/{Id}/x:") {
		t.Errorf("a parameter with the value of a criterion: %s", got)
	}
	_, problems := loadOne(limited("paths: any_case", "path: /a", "path: /A"))
	if got := lines(problems); !strings.Contains(got, "the resource never applies: the earlier *:/a") {
		t.Errorf("two paths that differ in case: %s", got)
	}
}

// TestCountedByEachKindOfValue: the same values count together, others apart, and all without one together.
func TestCountedByEachKindOfValue(t *testing.T) {
	for by, c := range map[string]struct{ one, same, other, without, empty string }{
		"remote_address": {"/a remote_address=x", "/a/ remote_address=x", "/a remote_address=y", "/a", "/a remote_address="},
		"masked_remote_address": {"/a masked_remote_address=x", "/a b=c masked_remote_address=x",
			"/a masked_remote_address=y", "/a", "/a masked_remote_address="},
		"header.X-Api-Key": {"/a header.x-api-key=x", "/a header.x-api-key=x", "/a header.x-api-key=y", "/a",
			"/a header.x-api-key="},
		"jwt.sub":       {"/a jwt.sub=x", "/a jwt.sub=x", "/a jwt.sub=y", "/a", "/a jwt.sub="},
		"query.q":       {"/a?q=x", "/a?r=1&q=%78&q=y", "/a?q=y", "/a", "/a?q="},
		"pathParams.id": {"/u/x", "/u/%78?a=b", "/u/y", "", ""},
	} {
		s := mustLoad(t, limited("", "path: /a, by: ["+strings.Replace(by, "pathParams.id", "query.z", 1)+"]",
			"path: '/u/{id}', by: "+strings.Replace(by, by, "pathParams.id", 1)))
		one := groupFor(s, "GET "+c.one)
		if got := groupFor(s, "GET "+c.same); got != one {
			t.Errorf("%s: the same value has the groups %s and %s", by, one, got)
		}
		if got := groupFor(s, "GET "+c.other); got == one || got == "-" {
			t.Errorf("%s: another value has the group %s", by, got)
		}
		if c.without == "" {
			continue
		}
		without := groupFor(s, "GET "+c.without)
		if empty := groupFor(s, "GET "+c.empty); without != empty || without == one || without == "" {
			t.Errorf("%s: the groups without a value are %q and %q", by, without, empty)
		}
	}
}

// TestValuesOfByStayApart: values cannot be spelt so that they look like others, nor does the order of by matter.
func TestValuesOfByStayApart(t *testing.T) {
	s := mustLoad(t, limited("", "path: /a, by: [remote_address, header.k]", "path: /b, by: [remote_address]"))
	other := mustLoad(t, limited("", "path: /a, by: [header.k, remote_address]"))
	seen := map[string]string{}
	for _, request := range []string{"/a remote_address=1 header.k=2", "/a remote_address=12", "/a header.k=12",
		"/a remote_address=2 header.k=1", "/a", "/b remote_address=1", "/b", "/a remote_address=8:header.k1:2",
		"/a header.k=" + strings.Repeat("x", 60_000), "/a header.k=" + strings.Repeat("x", 60_001)} {
		group := groupFor(s, "GET "+request)
		if before, ok := seen[group]; ok {
			t.Errorf("%.50s and %.50s have the group %s", before, request, group)
		}
		if len(group) > limit.MaxGroupLen {
			t.Errorf("the group of %.50s has %d bytes", request, len(group))
		}
		seen[group] = request
	}
	const request = "GET /a remote_address=1 header.k=2"
	if one, two := groupFor(s, request), groupFor(other, request); one != two {
		t.Errorf("by in another order has the group %s, not %s", two, one)
	}
}

// TestSpellingsOfAParameterShareACounter: who sends a path that servers may read as several values cannot choose a
// counter by it.
func TestSpellingsOfAParameterShareACounter(t *testing.T) {
	rule := "path: '/u/{id}/x', by: [pathParams.id]"
	s := mustLoad(t, limited("", rule))
	odd := groupFor(s, "GET /u/(others)/x")
	for _, path := range []string{"/u/7;a/x", "/u/7;b/x", "/u/7%00a/x", "/u/7%00b/x", "/u/%2537/x", "/u/7%3ba/x",
		"/u/7%C0%AE/x"} {
		if got := groupFor(s, "GET "+path); got != odd {
			t.Errorf("%s has the group %s, want %s", path, got, odd)
		}
	}
	plain := groupFor(s, "GET /u/7/x")
	for _, path := range []string{"/u/%37/x", "//u/./7/x/", "/u/7/x;a"} {
		if got := groupFor(s, "GET "+path); got != plain || got == odd {
			t.Errorf("%s has the group %s, want %s", path, got, plain)
		}
	}
	for top, want := range map[string]string{"paths: as_sent": "GET /u/7;a/x", "matrix_parameters: ignore": "GET /u/7/x"} {
		s := mustLoad(t, limited(top, rule))
		if got := groupFor(s, "GET /u/7;a/x"); got != groupFor(s, want) || got == odd {
			t.Errorf("%s: the group is %s", top, got)
		}
	}
	cased := mustLoad(t, limited("paths: any_case", rule))
	if groupFor(cased, "GET /u/Bob/x") != groupFor(cased, "GET /U/bOB/X") {
		t.Error("paths: any_case has parameters that differ in case count apart")
	}
}

// TestExceptOfAResource: the resource is not for these addresses, and a less specific one may be. Who does not say the
// address is limited.
func TestExceptOfAResource(t *testing.T) {
	checkRequests(t, limited("",
		"method: POST, path: /login, by: [remote_address], except: {network: [10.0.0.0/8, '::1']}",
		"path: /*", "path: /b, except: {network: 10.0.0.0/8}", "method: GET, path: '~^/login$'"), []request{
		{"POST /login remote_address=11.0.0.1", "POST:/login"},
		{"POST /login remote_address=10.0.0.1", "*:/*"},
		{"POST /login;a remote_address=10.0.0.1", "*:/*"},
		{"POST /login remote_address=::ffff:10.0.0.1", "*:/*"},
		{"POST /login remote_address=010.0.0.1", "POST:/login"},
		{"POST /login", "POST:/login"},
		{"POST /login header.x-forwarded-for=10.0.0.1", "POST:/login"},
		{"GET /b remote_address=10.0.0.1", "*:/*"},
		{"GET /b remote_address=11.0.0.1", "*:/b"},
	})
}

// TestNeedsOfBy: what requests must say is known.
func TestNeedsOfBy(t *testing.T) {
	s := mustLoad(t, limited("", "path: /a, by: [header.X-B, jwt.sub, masked_remote_address, query.q]",
		"path: /b, except: {network: '::1'}, match: {headers: {x-a: b}}"))
	n := s.Needs("d")
	if fmt.Sprint(n.Headers, n.Entries) != "[x-a x-b] [jwt.sub masked_remote_address remote_address]" {
		t.Errorf("the needs are %+v", n)
	}
}

// TestCountersByValueAreNamed: the descriptor of a counter leads to it again.
func TestCountersByValueAreNamed(t *testing.T) {
	s := mustLoad(t, limited("",
		"method: POST, path: '/u/{id}/{x}', by: [remote_address, pathParams.id, query.q, query.r]",
		"path: /a, by: [remote_address], max_keys: 7"))
	for request, want := range map[string]string{
		"POST /u/7%2F;/y?r=1&q=%26 remote_address=10.0.0.1": "d|method=POST|path=/u/(others)/{x}?q=%2526&r=1|" +
			"remote_address=10.0.0.1",
		"POST /u/a%20b/y?q=x remote_address=::1": "d|method=POST|path=/u/a%20b/{x}?q=x&r=|remote_address=::1",
		"GET /a":                                 "d|method=*|path=/a|remote_address",
	} {
		group := groupFor(s, request)
		domain, entries, matches, ok := s.Counted(group)
		if got := descriptors.Name(domain, entries); got != want || !matches || !ok {
			t.Errorf("%s is called %s (%v, %v), want %s", request, got, matches, ok, want)
		}
	}
	a := s.Rules()[1]
	if got := a.OthersGroup(false); got != groupFor(s, "GET /a remote_address=(others)") {
		t.Errorf("values beyond max_keys have the group %s", got)
	}
}

// TestByAllocatesTheGroupAlone.
func TestByAllocatesTheGroupAlone(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := mustLoad(t, limited("", "path: '/a/{id}', by: [remote_address, pathParams.id], except: {network: 10.0.0.0/8}"))
	for request, most := range map[string]float64{"GET /a/7 remote_address=11.0.0.1": 1,
		"GET /a/7 remote_address=10.0.0.1": 0} {
		es := asks(request)
		var m descriptors.Match
		if got := testing.AllocsPerRun(200, func() { s.Match("d", es, &m) }); got > most {
			t.Errorf("%s: %v allocations", request, got)
		}
	}
}
