package ratelimit

import (
	"fmt"
	"testing"
)

// BenchmarkChoose measures a request of so many candidates, of which the first has room, from decoding to encoding.
func BenchmarkChoose(b *testing.B) {
	for _, row := range []struct {
		name       string
		rule       string
		candidates int
	}{{"plain", "", 1}, {"plain", "", 2}, {"choose", "choose: model, ", 1}, {"choose", "choose: model, ", 2}} {
		c := decideCase{}
		c.rules.WriteString("domain: d\ndescriptors:\n")
		for i := range row.candidates {
			fmt.Fprintf(&c.rules, "- {key: to, value: v%d, %srate_limit: {unit: hour, requests_per_unit: 4000000000}}\n", i,
				row.rule)
			c.entries = append(c.entries, fmt.Sprint("to=v", i))
		}
		b.Run(fmt.Sprint(row.name, "/", row.candidates), c.run)
	}
}
