package httpapi

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// TestNearlyMatchingRules are those that differ in one entry.
func TestNearlyMatchingRules(t *testing.T) {
	set, problems := rulefile.Load([]rulefile.Source{{Name: "rules.yaml", Data: []byte(`domain: shop
descriptors:
- key: tenant
  rate_limit: {unit: minute, requests_per_unit: 1}
  descriptors:
  - {key: path, value: /pay, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: client, value: a, rate_limit: {unit: minute, requests_per_unit: 4}}
- {key: other, rate_limit: {unit: minute, requests_per_unit: 5}}
`)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	for descriptor, want := range map[string]string{
		"shop|tenant=a|path=/pay":      "tenant tenant.path",
		"shop|tenant=a":                "tenant.path_/pay tenant.path",
		"shop|tenantt=a":               "tenant",
		"shop|tenantt=a|path=/pay":     "tenant.path_/pay tenant.path",
		"shop|tenant=a|paht=/pay":      "tenant tenant.path_/pay tenant.path",
		"shop|client=b":                "client_a",
		"shop|far=b":                   "",
		"shop|other=b|x=y|z=z":         "",
		"elsewhere|tenant=a|path=/pay": "",
	} {
		domain, entries, err := parseName(descriptor)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range nearly(set, domain, entries) {
			got = append(got, r.Path)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %q, want %q", descriptor, text, want)
		}
	}
}
