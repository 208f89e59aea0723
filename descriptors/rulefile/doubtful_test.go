package rulefile_test

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// Values that mean something elsewhere, and a path with its query, are warned of; the same text is not where it is
// what Envoy sends.
func TestWarnsOfValuesThatCanNeverMatch(t *testing.T) {
	const network, regex, template, query = "is a network", "is a regular expression", "a part in braces", "with its query"
	for _, tt := range []struct{ rule, want string }{
		{"key: remote_address, value: 10.0.0.0/8", network},
		{`key: remote_address, value: "2001:db8::/32"`, network},
		{"key: masked_remote_address, value: 10.0.0.0/8", ""},
		{"key: remote_address, value: 10.*", ""},
		{"key: remote_address, value: 10.0.0.1", ""},
		{"key: route, value: api/8", ""},
		{`key: route, value: "^/watch/lv[0-9]+$"`, regex},
		{`key: route, value: "/watch/[0-9]+"`, regex},
		{`key: route, value: '/v\d/a'`, regex},
		{"key: route, value: /(a|b)/c", regex},
		{"key: route, value: /a/.+", regex},
		{"key: agent, value: 'Mozilla/5.0 (X11; Linux x86_64) a/1.0+b [en]'", ""},
		{"key: price, value: '5$ a month'", ""},
		{"key: route, value: /files/report.*", ""},
		{`key: route, value: "/v1/users/{id}/orders"`, template},
		{`key: generic_key, value: "/v1/users/{id}/orders"`, ""},
		{`key: header_match, value: "^x$"`, ""},
		{`key: route, value: '{"a":1}'`, ""},
		{"key: PATH", query},
		{"key: path", query},
		{`key: ":path"`, query},
		{"key: path, value: /a", ""},
		{"key: xpath", ""},
	} {
		text := "domain: d\ndescriptors:\n- {" + tt.rule + ", rate_limit: {unit: minute, requests_per_unit: 1}}\n"
		set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(text)}}, rulefile.Options{})
		if set == nil {
			t.Errorf("%s: %v", tt.rule, problems)
			continue
		}
		if tt.want == "" {
			if len(problems) != 0 {
				t.Errorf("%s: %v", tt.rule, problems)
			}
			continue
		}
		if len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems[0].Message, tt.want) ||
			problems[0].Line != 3 {
			t.Errorf("%s: %v, want %q", tt.rule, problems, tt.want)
		}
	}
}

// A rule with a value that lacks what is below its sibling without one is warned of, at every depth.
func TestWarnsOfRulesThatHideWhatIsBelowTheirSibling(t *testing.T) {
	const limited = "rate_limit: {unit: minute, requests_per_unit: 1}"
	const open = "  {key: tenant, descriptors: [{key: path, value: /a, " + limited + "}]}"
	for _, tt := range []struct{ rules, want string }{
		{"[" + open + ", {key: tenant, value: acme, " + limited + "}]", "f:3:"},
		{"[" + open + ", {key: tenant, value: acme, descriptors: [{key: route, " + limited + "}]}]", "f:3:"},
		{"[" + open + ", {key: tenant, value: ac*, " + limited + "}]", "f:3:"},
		{"[{key: top, descriptors: [" + open + ", {key: tenant, value: acme, " + limited + "}]}]", "f:3:"},
		{"[" + open + ", {key: tenant, value: acme, descriptors: [{key: path, value: /a, " + limited + "}]}]", ""},
		{"[" + open + ", {key: tenant, value: acme, descriptors: [{key: path, value: /*, " + limited + "}]}]", ""},
		{"[" + open + ", {key: tenant, value: acme, rate_limit: {unlimited: true}}]", ""},
		{"[" + open + ", {key: other, value: acme, " + limited + "}]", ""},
		{"[{key: tenant, " + limited + "}, {key: tenant, value: acme, " + limited + "}]", ""},
	} {
		text := "domain: d\ndescriptors:\n  " + tt.rules + "\n"
		set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(text)}}, rulefile.Options{})
		if set == nil {
			t.Errorf("%s: %v", tt.rules, problems)
			continue
		}
		if tt.want == "" {
			if len(problems) != 0 {
				t.Errorf("%s: %v", tt.rules, problems)
			}
			continue
		}
		if len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems[0].Message, "hides what f:3 has below") {
			t.Errorf("%s: %v", tt.rules, problems)
		}
	}
}
