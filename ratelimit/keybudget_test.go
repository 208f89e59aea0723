package ratelimit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

const fewKeys = `
domain: d
descriptors:
- key: tenant
  max_keys: 3
  rate_limit: {unit: minute, requests_per_unit: 2}
- key: tenant
  value: cust_*
  max_keys: 1
  rate_limit: {unit: minute, requests_per_unit: 5}
`

// figures returns the series of a metric, by their labels.
func (h *harness) figures(name string) map[string]int {
	all := map[string]int{}
	for _, r := range h.counts.Rows() {
		if r.Name == name {
			r.Each(func(labels []string, v float64, _ *metrics.Counts) { all[strings.Join(labels, "/")] = int(v) })
		}
	}
	return all
}

func TestNewValuesBeyondMaxKeysShareACounter(t *testing.T) {
	h := setup(t, fewKeys)
	for i := range 3 {
		h.want(h.ask(desc(fmt.Sprint("tenant=early-", i))), "OK: ok/1")
	}
	h.want(h.ask(desc("tenant=new-1")), "OK: ok/1")
	h.want(h.ask(desc("tenant=new-2")), "OK: ok/0")
	for i := range 1000 {
		h.want(h.ask(desc(fmt.Sprint("tenant=newer-", i))), "OVER: over/0")
	}
	h.want(h.ask(desc("tenant=early-1")), "OK: ok/0") // has kept its own
	h.want(h.ask(desc("tenant=early-1")), "OVER: over/0")
	h.want(h.ask(desc("tenant=(others)")), "OVER: over/0")
	if n := len(h.be.states); n != 4 {
		t.Errorf("the store has %d counters, want 4", n)
	}
	if got := fmt.Sprint(h.figures("headgate_rule_keys"), h.figures("headgate_rule_keys_shared_total")); got !=
		"map[d/tenant:3 d/tenant_cust_*:0] map[d/tenant:1003 d/tenant_cust_*:0]" {
		t.Error(got)
	}
	if n := strings.Count(h.log.String(), "max_keys=3"); n != 1 {
		t.Errorf("%d lines about max_keys in the log: %s", n, h.log)
	}
	// The shared counter has a name, which people can look up and reset.
	domain, entries, matches, ok := h.Rules().Counted(h.rules.Load().views[0].keys.shared)
	if name := descriptors.Name(domain, entries); !ok || !matches || name != "d|tenant=(others)" {
		t.Errorf("the shared counter is called %q (%v, %v)", name, matches, ok)
	}
}

// The shared counter of a pattern is none of another rule's.
func TestSharedCounterOfAPattern(t *testing.T) {
	h := setup(t, fewKeys)
	h.want(h.ask(desc("tenant=cust_1")), "OK: ok/4")
	h.want(h.ask(desc("tenant=cust_2")), "OK: ok/4")
	h.want(h.ask(desc("tenant=cust_3")), "OK: ok/3")
	h.want(h.ask(desc("tenant=(others)")), "OK: ok/1")
	h.want(h.ask(desc("tenant=cust_*")), "OK: ok/2") // the pattern's own text is a value like any other
}

func TestKeysThatNobodyUsesMakeRoom(t *testing.T) {
	h := setup(t, fewKeys)
	for _, v := range []string{"a", "b", "c", "d", "e"} {
		h.ask(desc("tenant=" + v))
	}
	h.want(h.ask(desc("tenant=f")), "OVER: over/0")
	h.now += limit.Instant(90 * time.Second / time.Microsecond)
	h.want(h.ask(desc("tenant=a")), "OK: ok/1")
	h.now += limit.Instant(60 * time.Second / time.Microsecond)
	h.want(h.ask(desc("tenant=f")), "OK: ok/1") // b and c are over
	h.want(h.ask(desc("tenant=g")), "OK: ok/1")
	h.want(h.ask(desc("tenant=h")), "OK: ok/1") // the shared one
	h.want(h.ask(desc("tenant=i")), "OK: ok/0")
	h.want(h.ask(desc("tenant=j")), "OVER: over/0")
}

// A clock that is a year ahead for a while has values keep their counters for no longer than others do afterwards.
func TestKeysOfAClockThatStepsBackMakeRoom(t *testing.T) {
	for name, later := range map[string]func(h *harness){
		"nobody uses them": func(*harness) {},
		"used once more":   func(h *harness) { h.ask(desc("tenant=a")); h.ask(desc("tenant=b")) },
	} {
		t.Run(name, func(t *testing.T) {
			h := setup(t, fewKeys)
			const year = limit.Instant(365 * 24 * time.Hour / time.Microsecond)
			h.now += year
			for _, v := range []string{"a", "b", "c", "d"} {
				h.ask(desc("tenant=" + v))
			}
			h.now -= year
			later(h)
			h.ask(desc("tenant=e")) // finds no room, but looks for it
			h.now = h.now.Add(130 * time.Second)
			h.want(h.ask(desc("tenant=f")), "OK: ok/1")
			h.want(h.ask(desc("tenant=g")), "OK: ok/1")
			h.want(h.ask(desc("tenant=h")), "OK: ok/1")
			h.want(h.ask(desc("tenant=i")), "OK: ok/1") // by the shared one
			h.want(h.ask(desc("tenant=j")), "OK: ok/0")
			h.want(h.ask(desc("tenant=h")), "OK: ok/0")
		})
	}
}

// What asks without taking, as the admin API does, makes no key.
func TestLooksMakeNoKeys(t *testing.T) {
	h := setup(t, fewKeys)
	for i := range 10 {
		h.want(h.ask(desc(fmt.Sprint("tenant=", i)).withHits(0)), "OK: ok/2")
	}
	if got := h.figures("headgate_rule_keys")["d/tenant"]; got != 0 {
		t.Errorf("%d keys", got)
	}
}

func TestReloadsKeepKeys(t *testing.T) {
	h := setup(t, fewKeys)
	for i := range 3 {
		h.ask(desc(fmt.Sprint("tenant=", i)))
	}
	more := strings.Replace(fewKeys, "requests_per_unit: 2", "requests_per_unit: 3", 1)
	if err := h.SetRules(mustLoad(t, more)); err != nil {
		t.Fatal(err)
	}
	h.want(h.ask(desc("tenant=x")), "OK: ok/2")
	h.want(h.ask(desc("tenant=y")), "OK: ok/1")
	h.want(h.ask(desc("tenant=1")), "OK: ok/1")
	if err := h.SetRules(mustLoad(t, fewKeys)); err != nil {
		t.Fatal(err)
	}
	h.want(h.ask(desc("tenant=z")), "OVER: over/0")
	if n := strings.Count(h.log.String(), "max_keys=3"); n != 1 {
		t.Errorf("%d lines about max_keys in the log: %s", n, h.log)
	}
}

// A rule that metrics call as another one before it begins without keys.
func TestReloadsKeepNoKeysOfAnotherRule(t *testing.T) {
	const rule = "domain: d\ndescriptors:\n- {%s, max_keys: 1, rate_limit: {unit: minute, requests_per_unit: 2}}\n"
	h := setup(t, fmt.Sprintf(rule, "key: a, value: b*"))
	h.want(h.ask(desc("a=b1")), "OK: ok/1")
	if err := h.SetRules(mustLoad(t, fmt.Sprintf(rule, "key: a_b*"))); err != nil {
		t.Fatal(err)
	}
	h.want(h.ask(desc("a_b*=own")), "OK: ok/1")
	h.want(h.ask(desc("a_b*=shared-1")), "OK: ok/1")
	h.want(h.ask(desc("a_b*=shared-2")), "OK: ok/0")
}

func TestValuesWithAPolicyAreNoOthers(t *testing.T) {
	h := setup(t, strings.Replace(fewKeys, "max_keys: 3", "max_keys: 1\n  policy: 't:{tenant}'", 1), withPolicies)
	h.put(map[string]policies.Figures{"t:known": {Algorithm: limit.FixedWindow, Capacity: 9, Window: 60 * policies.One}})
	h.ask(desc("tenant=a"))
	h.want(h.ask(desc("tenant=b")), "OK: ok/1")
	h.want(h.ask(desc("tenant=known")), "OK: ok/8")
	h.want(h.ask(desc("tenant=known")), "OK: ok/7")
}

// As the reference names counters, values beyond max_keys share one, too.
func TestSharedCounterAsTheReferenceNamesIt(t *testing.T) {
	h := setup(t, fewKeys, func(c *Config) { c.Caps.PlainWindows = true })
	for i := range 5 {
		h.ask(desc(fmt.Sprint("tenant=", i)))
	}
	h.want(h.ask(desc("tenant=x")), "OVER: over/0")
	key := limit.Key{Group: limit.TextGroup([]byte("d_tenant_(others)_")), Limit: limit.FixedWindow.KeyLetter()}
	if _, ok := h.be.states[key]; !ok {
		t.Errorf("%v", h.be.states)
	}
}

func BenchmarkKeyBudget(b *testing.B) {
	r := &descriptors.Rule{Domain: "d", Path: "tenant"}
	r.MaxKeys = 100_000
	k := newKeyBudget(r, nil, false)
	groups := make([]string, 1000)
	for i := range groups {
		groups[i] = fmt.Sprint("1:d6:tenant8:value", i)
	}
	b.ReportAllocs()
	for i := range b.N {
		k.admits(groups[i%len(groups)], true, start2026, time.Minute)
	}
}

// A value keeps its counter for as long as the limit that decides remembers anything, which need not be the rule's own:
// a policy's, one that the request brings, or one that may owe by the service's default.
func TestKeysLiveAsLongAsTheirCounters(t *testing.T) {
	const rules = "domain: d\ndescriptors:\n- {key: tenant, max_keys: 2, policy: 't:{tenant}', " +
		"rate_limit: {unit: minute, requests_per_unit: 2}}\n"
	owing := func(c *Config) { c.Overflow = descriptors.OverflowDebt }
	for name, c := range map[string]struct {
		change func(*Config)
		policy policies.Figures
		ask    func(value string) Descriptor
	}{
		"a policy per day": {func(*Config) {}, per(limit.FixedWindow, 2, 86400),
			func(value string) Descriptor { return desc("tenant=" + value) }},
		"a request's own limit": {func(*Config) {}, policies.Figures{}, func(value string) Descriptor {
			d := desc("tenant=" + value)
			d.HasOverride, d.Override = true, Override{RequestsPerUnit: 2, Unit: 4}
			return d
		}},
		"debt": {owing, policies.Figures{}, func(value string) Descriptor {
			return desc("tenant=" + value).withHits(30)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := setup(t, rules, withPolicies, c.change)
			if c.policy.Algorithm != 0 {
				h.put(map[string]policies.Figures{"*": c.policy})
			}
			for round := range 2 {
				for i := range 5 {
					h.ask(c.ask(fmt.Sprint("tenant-", round, "-", i)))
				}
				h.now += limit.Instant(150 * time.Second / time.Microsecond)
			}
			if n := len(h.be.states); n != 3 {
				t.Errorf("the store has %d counters, want 3", n)
			}
		})
	}
}

// A value keeps its counter while its requests in flight are renewed, however long nobody else asks for it.
func TestRenewedLeasesKeepTheirKey(t *testing.T) {
	h := setup(t, "domain: d\ndescriptors:\n- {key: tenant, max_keys: 1, lease_ttl: 1m, "+
		"concurrency: [{threshold: 1, response: {statusCode: 429}}]}\n")
	renew := release(h.acquire("tenant=a"))
	renew.Entries[0].Value = string(leases.Renew)
	for range 10 {
		h.now = h.now.Add(30 * time.Second)
		h.want(h.ask(renew), "OK: ok")
	}
	h.acquire("tenant=b") // by the counter that the others share
	h.now = h.now.Add(10 * time.Second)
	h.want(h.ask(desc("tenant=a")), "OVER: over/0")
	if got := h.figures("headgate_rule_keys")["d/tenant"]; got != 1 {
		t.Errorf("%d keys", got)
	}
}
