package ratelimit

import (
	"testing"

	"github.com/headgate-rls/headgate/limit"
)

// TestShareByDefault: with ShareAuto, limits follow their traffic that can be taken ahead, that do not say how
// many, and of which nothing is reserved. Limits that rules have in common stay one.
func TestShareByDefault(t *testing.T) {
	set := mustLoad(t, `domain: d
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 1000}
  - key: b
    limits:
      - {name: same, algorithm: fixed_window, limit: 1000, window: 1h}
      - {name: own, algorithm: token_bucket, rate: 10/s, burst: 250, local_share: 25}
  - key: e
    rate_limit: {unit: hour, requests_per_unit: 2000, local_share: none}
  - key: c
    reserve: {amount: 10}
    rate_limit: {unit: hour, requests_per_unit: 1000}
  - key: d
    concurrency: [{threshold: 5, response: {statusCode: 429}}]
`)
	for _, auto := range []bool{false, true} {
		conf := Config{ShareAuto: auto, Encoder: unsent{}}
		rs, _ := newRuleset(set, nil, &conf)
		byRule := map[string][]*limit.Limit{}
		for _, v := range rs.views {
			for i := range v.limits {
				byRule[v.rule.Path] = append(byRule[v.rule.Path], v.limits[i].Limit)
			}
		}
		want := int64(0)
		if auto {
			want = limit.AutoShare
		}
		a, b := byRule["a"][0], byRule["b"]
		if e := byRule["e"][0]; e.Share() != limit.NoShare || e.TakesAhead() {
			t.Errorf("ShareAuto %v: local_share: none becomes %d", auto, e.Share())
		}
		if a.Share() != want || b[0].Share() != want || b[0] != a || b[1].Share() != 25 || byRule["c"][0].Share() != 0 ||
			byRule["d"][0].Share() != 0 {
			t.Errorf("ShareAuto %v: %v %v %v %v", auto, a.Share(), b[0].Share(), b[1].Share(), byRule["c"][0].Share())
		}
	}
}
