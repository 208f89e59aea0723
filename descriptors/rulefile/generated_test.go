package rulefile_test

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// generated is a file in the form in which Envoy Gateway writes rules.
const generated = `name: first-listener
domain: first-listener
descriptors:
  - key: first-route
    value: first-route
    rate_limit: null
    descriptors:
      - key: masked_remote_address
        value: 10.0.0.0/8
        rate_limit:
          requests_per_unit: 5
          unit: SECOND
          unlimited: false
          name: ""
          replaces: []
        descriptors: []
        shadow_mode: false
        detailed_metric: false
      - key: remote_address
        value: ""
        rate_limit:
          requests_per_unit: 5
          unit: SECOND
          unlimited: false
          name: ""
          replaces: null
        descriptors: null
        metadata: null
    shadow_mode: true
    detailed_metric: false
`

// What Envoy Gateway and go-control-plane write loads with one line. Without the name it is a file by hand, where what
// is empty may be cut off.
func TestGeneratedFilesLoad(t *testing.T) {
	load := func(text string) (int, string) {
		set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(text)}}, rulefile.Options{})
		var all strings.Builder
		for _, p := range problems {
			all.WriteString(p.String() + "\n")
		}
		if set == nil {
			return -1, all.String()
		}
		return len(set.Rules()), all.String()
	}
	n, said := load(generated)
	if n != 2 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "f:1:7: warning: the file has a name ") {
		t.Errorf("%d rules, %s", n, said)
	}
	if n, said := load(strings.TrimPrefix(generated, "name: first-listener\n")); n != -1 ||
		!strings.Contains(said, "f:5:17: rate_limit is empty") {
		t.Errorf("by hand: %d rules, %s", n, said)
	}
	if n, said := load("name: d\ndescriptors: [{key: k, rate_limit: {unlimited: true}}]\n"); n != -1 ||
		!strings.Contains(said, "did you mean") && !strings.Contains(said, "belongs in") {
		t.Errorf("a name in place of the domain: %d rules, %s", n, said)
	}
}
