package descriptors_test

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/limit"
)

// TestLocalShare: what is loaded and dumped.
func TestLocalShare(t *testing.T) {
	set := mustLoad(t, `domain: d
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 1000, local_share: 50}
  - key: b
    limits:
      - {name: smooth, algorithm: sliding_window, rate: 600/min, local_share: 10}
      - {algorithm: sliding_log, limit: 5, window: 1m, local_share: 2}
      - {algorithm: token_bucket, rate: 10/s, burst: 250, local_share: 250}
      - {name: exact, algorithm: token_bucket, rate: 10/s}
  - key: c
    limits:
      - {algorithm: fixed_window, limit: 5000, window: 1m, local_share: auto}
      - {name: few, algorithm: sliding_window, limit: 199, window: 1m, local_share: auto}
      - {name: never, algorithm: sliding_window, limit: 199, window: 2m, local_share: none}
`)
	var shares []int64
	for _, r := range set.Rules() {
		for i := range r.Limits {
			shares = append(shares, r.Limits[i].Limit.Share())
		}
	}
	if got := shares; len(got) != 8 || got[0] != 50 || got[1] != 10 || got[2] != 2 || got[3] != 250 || got[4] != 0 ||
		got[5] != limit.AutoShare {
		t.Errorf("shares %v", got)
	}
	var dump strings.Builder
	if err := set.Dump(&dump); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(dump.String(), ", local_share: "); n != 7 ||
		!strings.Contains(dump.String(), ", name: smooth, local_share: 10\n") {
		t.Error(dump.String())
	}
}

// TestReserveIsDumped: what is loaded and dumped.
func TestReserveIsDumped(t *testing.T) {
	set := mustLoad(t, `domain: d
descriptors:
  - key: a
    reserve: {amount: auto, default: 10, max: 50, on_lost: free}
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: b
    limits:
      - {name: calls, algorithm: fixed_window, limit: 5, window: 1m}
      - {name: tokens, algorithm: token_bucket, rate: 10/s, burst: 250, reserve: {amount: 25, match: oldest, ttl: 30s}}
`)
	var dump strings.Builder
	if err := set.Dump(&dump); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"reserve: amount auto default 10 min 2 max 50 ttl 10m on_lost free on_5xx free match token",
		"reserve: amount 25 ttl 30s on_lost free match oldest",
	} {
		if !strings.Contains(dump.String(), want) {
			t.Errorf("%q lacks %q", dump.String(), want)
		}
	}
	if r := set.Rules()[1]; r.Limits[0].Reserved || !r.Limits[1].Reserved || r.Reserve.Default != 25 {
		t.Errorf("%+v", r.Limits)
	}
}
