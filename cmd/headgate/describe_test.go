package main

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// described returns what headgate check says about rules that are good.
func described(t *testing.T, rules string) string {
	t.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "rules.yaml", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	var said strings.Builder
	describe(&said, set)
	return said.String()
}

// TestDescribeLocalShare: how far limits can be off.
func TestDescribeLocalShare(t *testing.T) {
	said := described(t, `domain: d
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
	if said != want {
		t.Errorf("got\n%swant\n%s", said, want)
	}
}

// TestDescribeReserve: what requests reserve, and what the budget's bound is.
func TestDescribeReserve(t *testing.T) {
	said := described(t, `domain: d
descriptors:
  - key: a
    reserve: {amount: auto, default: 10, max: 50, on_lost: free}
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: b
    limits:
      - {name: calls, algorithm: fixed_window, limit: 5, window: 1m}
      - {name: tokens, algorithm: token_bucket, rate: 10/s, burst: 250, reserve: {amount: 25, match: oldest, ttl: 30s}}
  - key: c
    reserve: {amount: auto, default: 50, min: 40, max: 100}
    limits:
      - {name: hour, algorithm: fixed_window, limit: 100, window: 1h}
      - {name: day, algorithm: fixed_window, limit: 1000, window: 24h}
`)
	for _, want := range []string{
		"d/a: requests reserve what requests of the key cost of late, at most what they estimate and 50, at least 2, and " +
			"10 at first of 100/1h; a client that cooperates: of a new key at most 10 requests begin at once; beyond the " +
			"budget is spent at most what requests in flight cost more than they reserved; one that does not: at most 50 " +
			"requests are open at once, which spend at most 50 × 50 units if none costs more than max; a request whose end",
		"c: requests reserve what requests of the key cost of late, at most what they estimate and 100, at least 40, and " +
			"50 at first of 100/1h and 1000/24h; a client that cooperates: of a new key at most 2 requests begin at once; ",
		"at most 2 requests are open at once, which spend at most 2 × 100 units if none",
		"gives back what it reserved, after 11m at the latest",
		"d/b: requests reserve 25 units of token_bucket 10/1s burst 250; of a new key at most 10 requests begin at once; ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}
