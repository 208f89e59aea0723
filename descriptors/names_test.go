package descriptors_test

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// TestNamedResourceKeepsItsCount: a resource with a name counts under it,
// whatever becomes of its method, path and criteria; one without is another
// when they change.
func TestNamedResourceKeepsItsCount(t *testing.T) {
	group := func(resource, method, path string) string {
		t.Helper()
		set := mustLoad(t, "domain: d\nresources:\n- {"+resource+
			", concurrency: [{threshold: 5, response: {statusCode: 429}}]}\n")
		var m descriptors.Match
		set.Match("d", []descriptors.Entry{{Key: "method", Value: method}, {Key: "path", Value: path}}, &m)
		if m.Rule == nil || m.Group == "" {
			t.Fatalf("%s %s does not meet %s", method, path, resource)
		}
		return m.Group
	}
	named := group("name: users, path: /api/users", "GET", "/api/users")
	for _, other := range []string{"name: users, path: /v2/users", "method: GET, path: /v2/users, name: users",
		"name: users, path: '/v2/*'"} {
		if got := group(other, "GET", "/v2/users"); got != named {
			t.Errorf("%s counts elsewhere: %q, not %q", other, got, named)
		}
	}
	plain := group("path: /api/users", "GET", "/api/users")
	for _, other := range []string{"path: /v2/users", "name: other, path: /v2/users",
		"name: '*:/v2/users', path: /v2/users"} {
		if got := group(other, "GET", "/v2/users"); got == named || got == plain {
			t.Errorf("%s counts together with another", other)
		}
	}
}

// TestResourceNames: names are unique in a domain, and plain text.
func TestResourceNames(t *testing.T) {
	const tiers = "concurrency: [{threshold: 5, response: {statusCode: 429}}]"
	for rules, want := range map[string]string{
		"- {name: a, path: /x, " + tiers + "}\n- {name: a, path: /y, " + tiers +
			"}": `another resource is called "a", in a.yaml:3`,
		"- {name: 'a\\b', path: /x, " + tiers + "}": "visible ASCII",
		"- {name: [a], path: /x, " + tiers + "}":    "name must be text",
	} {
		set, problems := rulefile.Load(
			[]rulefile.Source{{Name: "a.yaml", Data: []byte("domain: d\nresources:\n" + rules + "\n")}}, rulefile.Options{})
		if set != nil || len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%s: %v, want %q", rules, problems, want)
		}
	}
}
