package ratelimit

import (
	"fmt"
	"testing"
)

// TestNoMoreIsLeftThanTheLimit: what answers call the limit of a bucket is what it can hold, in the time in which it
// refills.
func TestNoMoreIsLeftThanTheLimit(t *testing.T) {
	h := setup(t, `
domain: d
descriptors:
  - key: bucket
    limits: [{name: b, algorithm: token_bucket, rate: 10/min, burst: 100}]
  - key: window
    limits: [{name: w, algorithm: fixed_window, limit: 10, window: 1m}]
`, func(c *Config) {
		c.Headers = Headers{Limit: "limit", Remaining: "remaining", IETF: true}
	})
	for key, want := range map[string]string{
		"bucket": `[{limit 100} {remaining 99} {RateLimit-Policy "b";q=100;w=600} {RateLimit "b";r=99;t=6}]`,
		"window": `[{limit 10} {remaining 9} {RateLimit-Policy "w";q=10;w=60} {RateLimit "w";r=9;t=60}]`,
	} {
		if got := fmt.Sprint(h.ask(desc(key + "=a")).Headers); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if got := LimitOnWire(h.Rules().Rules()[0].Limits[0].Limit); got != 100 {
		t.Errorf("Envoy gets %d", got)
	}
}
