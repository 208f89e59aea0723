package rulefile

import (
	"strings"
	"testing"
)

// TestAutoWithoutMax: it loads, with a warning at its place.
func TestAutoWithoutMax(t *testing.T) {
	for reserve, want := range map[string]string{
		"{amount: auto, default: 8}": "f:5:23: warning: amount: auto without max: one expensive request has its key " +
			"reserve up to the whole limit",
		"{amount: auto, default: 8, max: 50}": "",
		"{amount: estimate, default: 8}":      "",
		"{amount: 8}":                         "",
	} {
		set, problems := Load([]Source{{Name: "f", Data: []byte("domain: d\ndescriptors:\n  - key: k\n" +
			"    rate_limit: {unit: hour, requests_per_unit: 100}\n    reserve: " + reserve + "\n")}}, Options{})
		if set == nil || len(problems) > 1 {
			t.Errorf("%s: %v", reserve, problems)
			continue
		}
		got := ""
		for _, p := range problems {
			got = p.String()
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", reserve, got, want)
		}
	}
}
