package descriptors_test

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// TestMatrixParameters: what follows a semicolon in a segment is ignored where
// the domain asks for it, before anything else is done to the segment.
func TestMatrixParameters(t *testing.T) {
	const rules = "path: /api/users\npath: '/api/users/{id}', pathParams: {id: '7'}\npath: /admin/*\npath: /semi%3Bcolon"
	for _, r := range []struct{ path, keep, ignore string }{
		{"/api/users;a=1", "-", "*:/api/users"},
		{"/api;x/users", "-", "*:/api/users"},
		{"/api/users;a=1;b=2/", "-", "*:/api/users"},
		{"/api/users;/7;a", "-", "*:/api/users/{id}:"},
		{"/api/;/users", "-", "*:/api/users"},
		{"/api/;a=%2Fx/users", "-", "*:/api/users"},
		{"/x/..;/admin/y", "-", "*:/admin/*"},
		{"/x/%2e.;a=b/admin/y", "-", "*:/admin/*"},
		{"/x/..;/..;/admin", "-", "*:/admin/*"},
		{"/;a/admin;b", "-", "*:/admin/*"},
		{"/api/users%3Ba=1", "-", "-"}, // is text
		{"/semi%3Bcolon", "*:/semi%3Bcolon", "*:/semi%3Bcolon"},
		{"/api/users?a;b", "*:/api/users", "*:/api/users"},
		{"/api/users?x=/;/admin", "*:/api/users", "*:/api/users"},
		{"/;", "-", "-"},
		{";", "-", "-"},
	} {
		for mode, want := range map[string]string{"": r.keep, "matrix_parameters: keep\n": r.keep,
			"matrix_parameters: ignore\n": r.ignore} {
			s := mustLoad(t, "paths: as_sent\n"+mode+resources(rules))
			if got := resourceFor(s, "GET "+r.path); !strings.HasPrefix(got, want) || want == "-" && got != "-" {
				t.Errorf("%s%s: got %s, want %s", mode, r.path, got, want)
			}
		}
	}
}

// TestMatrixParametersOfADomain: one file says it for all of the domain, and
// two must not say different things.
func TestMatrixParametersOfADomain(t *testing.T) {
	a, b := resources("path: /a"), resources("path: /b")
	load := func(sources ...string) (*descriptors.Set, []descriptors.Problem) {
		var list []rulefile.Source
		for i, text := range sources {
			list = append(list, rulefile.Source{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)})
		}
		return rulefile.Load(list, rulefile.Options{MergeDomains: true})
	}
	s, problems := load(a, "paths: as_sent\nmatrix_parameters: ignore\n"+b)
	if s == nil {
		t.Fatal(problems)
	}
	if got := resourceFor(s, "GET /a;x"); got != "*:/a" {
		t.Errorf("another file's resource: got %s", got)
	}
	s, problems = load("matrix_parameters: keep\n"+a, "matrix_parameters: ignore\n"+b)
	if s != nil || len(problems) != 1 || problems[0].String() != "b.yaml:1:20: matrix_parameters in a.yaml:1 "+
		"contradicts this; a domain treats all its requests alike (at d)" {
		t.Errorf("two files that differ: %v", problems)
	}
}
