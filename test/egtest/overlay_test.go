//go:build egtest

package egtest

import (
	"path/filepath"
	"strings"
	"testing"
)

// An overlay gives users of Envoy Gateway windows and algorithms for which it has no
// field: clients see the longer window, and limits count as the overlay says.
func TestEnvoyGatewayWithAnOverlay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overlay.yaml")
	cases := []scenario{
		{name: "15 minutes", host: "quarter",
			rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}]\n  limit: {requests: 3, unit: Minute}",
			steps: []step{{3, header("x-user-id", "one"), 200, "3, 3;w=900"},
				{1, header("x-user-id", "one"), 429, "3, 3;w=900"}}},
		{name: "an hour that slides", host: "sliding",
			rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}]\n  " + threePerHour,
			steps: threeOf(header("x-user-id", "one"))},
	}
	l := &lab{t: t}
	l.write(file, "overlay:\n"+
		"- {domain: default/eg/*, rule: '*/quarter/*', unit_multiplier: 15}\n"+
		"- {domain: default/eg/*, rule: '*/sliding/*', algorithm: sliding_log}\n")
	l = start(t, program, cases, "HEADGATE_XDS_OVERLAY="+file, "HEADGATE_UNIT_MULTIPLIER=true")
	play(t, cases)
	config := l.rlconfig()
	for _, want := range []string{"unit=MINUTE requests_per_unit=3 unit_multiplier=15",
		"algorithm=sliding_log limit=3 window=1h"} {
		if !strings.Contains(config, want) {
			t.Errorf("/rlconfig does not say %q:\n%s", want, config)
		}
	}
}
