package rulefile

import (
	"strings"
	"testing"
)

// TestTierWarnings: what loads but does not do what it seems to.
func TestTierWarnings(t *testing.T) {
	for rule, want := range map[string]string{
		"concurrency: [{threshold: 1, response: {statusCode: 429, delay: " +
			"{exact: 10}}}]": "the tier above 1 refuses, and does so at once: its delay is ignored",
		"concurrency: [{threshold: 1, response: {statusCode: 429}}]\n    release: hits\n    rate_limit: {unit: hour, " +
			"requests_per_unit: 1}": "gives back at its end what it took",
		"concurrency: [{threshold: 1, response: {delay: {exact: 10}}}, {threshold: 2, response: {statusCode: 429}}]": "",
	} {
		set, problems := Load([]Source{{Name: "f", Data: []byte("domain: d\ndescriptors:\n  - key: k\n    " + rule + "\n")}},
			Options{})
		if set == nil {
			t.Errorf("%s: %v", rule, problems)
			continue
		}
		var got string
		for _, p := range problems {
			got += p.Message
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}
