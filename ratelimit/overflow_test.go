package ratelimit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

func saturating(c *Config) { c.Overflow = descriptors.OverflowSaturate }

// usage is a proxy that asks about each request with hits 0 and reports what its
// response has cost; it returns whether requests passed.
func (h *harness) usage(n int, cost uint64, d Descriptor) string {
	var codes []string
	for range n {
		code := "429"
		if !h.ask(d.withHits(0)).OverLimit {
			code = "200"
			h.ask(d.withHits(cost))
		}
		codes = append(codes, code)
	}
	return strings.Join(codes, " ")
}

// TestUsageFollowsTheOverflow: 21 per hour, and responses that cost ten.
func TestUsageFollowsTheOverflow(t *testing.T) {
	for _, a := range limit.Algorithms() {
		figures := "limit: 21, window: 1h"
		if a == limit.TokenBucket {
			figures = "rate: 21/h"
		}
		for overflow, want := range map[string]string{
			"refuse": "200 200 200 200 200", "saturate": "200 200 200 429 429", "debt": "200 200 200 429 429",
		} {
			h := setup(t, fmt.Sprintf("domain: d\ndescriptors:\n- {key: user, overflow: %s, limits: [{algorithm: %v, %s}]}\n",
				overflow, a, figures))
			if got := h.usage(5, 10, desc("user=a")); got != want {
				t.Errorf("%v, %s: %s, want %s", a, overflow, got, want)
			}
		}
	}
}

// TestUsageInDebt: an answer of ten limits blocks its user for ten hours.
func TestUsageInDebt(t *testing.T) {
	h := setup(t, "domain: d\ndescriptors:\n- {key: user, overflow: debt, max_debt: 20000, limits: [{algorithm: "+
		"token_bucket, rate: 1000/min}]}\n")
	if got := h.usage(2, 11_000, desc("user=a")); got != "200 429" {
		t.Fatal(got)
	}
	h.now += limit.Instant(10*60e6 + 59_999)
	h.want(h.ask(desc("user=a").withHits(0)), "OVER: over/0")
	h.now++
	h.want(h.ask(desc("user=a").withHits(0)), "OK: ok/1")
	if n := h.counts.count("d/user overflow of 1"); n != 11_000 {
		t.Errorf("%d hits counted beyond the limit", n)
	}
}

// reference answers as github.com/envoyproxy/ratelimit does: it counts all hits, and
// says "over" where more than the limit have come.
type reference struct {
	limit, count uint64
}

func (r *reference) over(hits uint64) bool {
	r.count += hits
	return r.count > r.limit
}

// TestAnswersOfTheReference: with saturate, requests of random hits get the answers
// of the reference, alone and beside others, in shadow and quota mode, and with a
// limit of their own. Hits of 0 are left out where exactly the limit is used: the
// reference lets one more such request pass.
func TestAnswersOfTheReference(t *testing.T) {
	const rules = `
domain: d
descriptors:
- {key: a, rate_limit: {unit: hour, requests_per_unit: 21}}
- {key: b, rate_limit: {unit: hour, requests_per_unit: 9}}
- {key: s, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: q, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
`
	r := random.Rand(t, 7)
	for round := range 300 {
		h := setup(t, rules, saturating)
		limits := map[string]*reference{"a": {limit: 21}, "b": {limit: 9}, "s": {limit: 10}, "q": {limit: 10},
			"o": {limit: 12}}
		for range 25 {
			var list []Descriptor
			var want []bool
			over := false
			quotas, spent := 0, 0
			for _, key := range []string{"a", "b", "s", "q", "o"} {
				if r.IntN(2) == 0 {
					continue
				}
				ref := limits[key]
				hits := uint64(r.IntN(5))
				if r.IntN(10) == 0 {
					hits = 10_000
				}
				if hits == 0 && ref.count >= ref.limit {
					hits = 1
				}
				d := desc(key + "=x").withHits(hits)
				if key == "o" {
					d.HasOverride, d.Override = true, Override{RequestsPerUnit: 12, Unit: 3}
				}
				list = append(list, d)
				is := ref.over(hits)
				switch key {
				case "s":
					is = false
				case "q":
					quotas++
					if is {
						spent++
					}
				default:
					over = over || is
				}
				want = append(want, is)
			}
			if len(list) == 0 {
				continue
			}
			over = over || quotas > 0 && spent == quotas
			resp := h.ask(list...)
			if resp.Err != nil || resp.OverLimit != over {
				t.Fatalf("round %d: %s, the reference says over %v %v", round, summary(resp), over, want)
			}
			for i := range want {
				if resp.Statuses[i].OverLimit != want[i] {
					t.Fatalf("round %d, %+v: %s, the reference says %v", round, list, summary(resp), want)
				}
			}
		}
	}
}

// TestReportsAreChargedEach: hits that the caller names are charged by each limit
// that overflows for itself; a plain request that one limit refuses costs nothing
// elsewhere.
func TestReportsAreChargedEach(t *testing.T) {
	const rules = `
domain: d
descriptors:
- {key: narrow, rate_limit: {unit: hour, requests_per_unit: 5}}
- {key: wide, rate_limit: {unit: hour, requests_per_unit: 100}}
- {key: strict, overflow: refuse, rate_limit: {unit: hour, requests_per_unit: 100}}
`
	h := setup(t, rules, saturating)
	all := []Descriptor{desc("narrow=x"), desc("wide=x"), desc("strict=x")}
	reports := func(n uint64) (list []Descriptor) {
		for _, d := range all {
			list = append(list, d.withHits(n))
		}
		return list
	}
	h.want(h.ask(reports(8)...), "OVER: over/0 ok/92 ok/100")
	h.want(h.ask(reports(8)...), "OVER: over/0 ok/84 ok/100")
	h.want(h.ask(reports(1)...), "OVER: over/0 ok/83 ok/100") // one named hit is a report, too
	h.want(h.ask(all...), "OVER: over/0 ok/83 ok/100")
	h.want(h.askDomain("d", 7, all...), "OVER: over/0 ok/76 ok/100")
	if n := h.counts.count("d/narrow overflow of 1"); n != 5 {
		t.Errorf("%d hits counted as taken without room", n)
	}
}

// TestQuotaModeSaturates: a report beyond the quota spends it.
func TestQuotaModeSaturates(t *testing.T) {
	const rules = "domain: d\ndescriptors:\n- {key: q, quota_mode: true, rate_limit: {unit: hour, " +
		"requests_per_unit: 10}}\n"
	h := setup(t, rules, saturating)
	q := desc("q=x")
	h.want(h.ask(q.withHits(1)), "OK: ok/9")
	h.want(h.ask(q.withHits(20)), "OVER: over/0")
	h.want(h.ask(q.withHits(1)), "OVER: over/0")
}

// TestOwnOverflowBeatsTheDefault: a rule's own overflow beats the service's, and a backend
// that does not keep the default gets the next one to it.
func TestOwnOverflowBeatsTheDefault(t *testing.T) {
	const rules = `
domain: d
descriptors:
- {key: own, overflow: refuse, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: none, rate_limit: {unit: hour, requests_per_unit: 10}}
`
	for _, c := range []struct {
		def  descriptors.Overflow
		most limit.Overflow
		want limit.Overflow
	}{
		{descriptors.OverflowDefault, limit.Debt, limit.Refuse},
		{descriptors.OverflowSaturate, limit.Debt, limit.Saturate},
		{descriptors.OverflowDebt, limit.Debt, limit.Debt},
		{descriptors.OverflowDebt, limit.Saturate, limit.Saturate},
		{descriptors.OverflowDebt, limit.Refuse, limit.Refuse},
	} {
		h := setup(t, rules, func(conf *Config) {
			conf.Overflow = c.def
			for a, ac := range conf.Caps.Algorithms {
				ac.Overflow = c.most
				conf.Caps.Algorithms[a] = ac
			}
		})
		views := h.engine.rules.Load().views
		if own, none := views[0].limits[0].Limit.Overflow(), views[1].limits[0].Limit.Overflow(); own != limit.Refuse ||
			none != c.want {
			t.Errorf("%+v: the rule that says refuse has %v, the other one %v", c, own, none)
		}
	}
}
