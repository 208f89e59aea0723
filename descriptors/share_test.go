package descriptors_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/limit"
)

// TestLocalShare: what is loaded, dumped, and said about it.
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
	var said, dump strings.Builder
	if err := set.Describe(&said); err != nil {
		t.Fatal(err)
	}
	const want = `d/a: limit, local_share 50: ` +
		`up to 49 × replicas of 1000 may be refused too early in each window of 1h; ` +
		`never more than 1000 pass
d/b: limit smooth, local_share 10: up to 9 × replicas of 600 may be refused too early, ` +
		`and as many may pass beyond the limit in 1m
d/b: limit, local_share 2: up to 1 × replicas of 5 may be refused too early, and as many may pass beyond the limit in 1m
d/b: limit, local_share 250: up to 249 × replicas of 250 may be refused too early, ` +
		`and as many may pass beyond rate and burst
d/c: limit, local_share auto: up to 50 of 5000 may be refused too early, 1 % of what is left, ` +
		`in each window of 1m; never more than 5000 pass
d/c: limit few, local_share auto: nothing is taken ahead of a limit below 200
`
	if said.String() != want {
		t.Errorf("got\n%swant\n%s", said.String(), want)
	}
	if err := set.Dump(&dump); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(dump.String(), ", local_share: "); n != 7 ||
		!strings.Contains(dump.String(), ", name: smooth, local_share: 10\n") {
		t.Error(dump.String())
	}
}

// TestDescribeReserve: what is loaded, dumped, and said about it.
func TestDescribeReserve(t *testing.T) {
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
	var said, dump strings.Builder
	if err := errors.Join(set.Describe(&said), set.Dump(&dump)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"d/a: requests reserve what requests of the key cost of late, at most what they estimate and 50, and 10 at first " +
			"of 100/1h; of a new key at most 10 requests begin at once; ",
		"gives back what it reserved, after 11m at the latest",
		"d/b: requests reserve 25 units of token_bucket 10/1s burst 250; of a new key at most 10 requests begin at once; ",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q lacks %q", said.String(), want)
		}
	}
	for _, want := range []string{
		"reserve: amount auto default 10 max 50 ttl 10m on_lost free on_5xx free match token",
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
