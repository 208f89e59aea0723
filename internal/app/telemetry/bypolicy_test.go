package telemetry

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/ratelimit"
)

// tallyOf is a tally of decisions that left remaining of limit units.
func tallyOf(o ratelimit.Outcome, n, remaining, limit int64) *ratelimit.PolicyTally {
	t := &ratelimit.PolicyTally{Level: ratelimit.Level{Remaining: remaining, Limit: limit}}
	t.Outcomes[o] = n
	return t
}

func TestMetricsShowWhatPoliciesDecide(t *testing.T) {
	m := New("v1")
	big := m.Policy("shop", "user", "user:big")
	if m.Policy("shop", "user", "user:big") != big {
		t.Error("one policy has two series")
	}
	text := scrape(t, m)
	wantLines(t, text, `headgate_policy_decisions_total{domain="shop",outcome="over_limit",policy="user:big",rule="user"} 0`)
	if strings.Contains(text, "headgate_policy_remaining_units{") {
		t.Error("before a decision something is known of what is left")
	}
	big.Record(tallyOf(ratelimit.OutcomeOK, 3, 40, 100))
	big.Record(tallyOf(ratelimit.OutcomeOK, 2, 60, 100))
	big.Record(tallyOf(ratelimit.OutcomeFailedOpen, 1, 0, 0))
	m.Policy("shop", "user", ratelimit.PolicyOfKeys).Record(tallyOf(ratelimit.OutcomeOverLimit, 4, 0, 5))
	text = scrape(t, m)
	wantLines(t, text,
		`headgate_policy_decisions_total{domain="shop",outcome="ok",policy="user:big",rule="user"} 5`,
		`headgate_policy_decisions_total{domain="shop",outcome="failed_open",policy="user:big",rule="user"} 1`,
		`headgate_policy_decisions_total{domain="shop",outcome="over_limit",policy="(keys)",rule="user"} 4`,
		`headgate_policy_remaining_units{domain="shop",policy="user:big",rule="user"} 40`,
		`headgate_policy_limit_units{domain="shop",policy="user:big",rule="user"} 100`,
		`headgate_policy_remaining_units{domain="shop",policy="(keys)",rule="user"} 0`)
	if strings.Contains(text, `outcome="unlimited"`) {
		t.Error("a series for what never happened")
	}
}

// TestPoliciesThatAreForgottenHaveNoSeries: and take no room.
func TestPoliciesThatAreForgottenHaveNoSeries(t *testing.T) {
	m := New("v1")
	m.Policy("shop", "user", "user:gone").Record(tallyOf(ratelimit.OutcomeOK, 3, 40, 100))
	m.Policy("shop", "user", "user:stays").Record(tallyOf(ratelimit.OutcomeOK, 3, 40, 100))
	m.ForgetPolicy("shop", "user", "user:gone")
	m.ForgetPolicy("shop", "user", "user:gone")
	m.ForgetPolicy("shop", "user", "user:never")
	text := scrape(t, m)
	if strings.Contains(text, "user:gone") || !strings.Contains(text, `policy="user:stays"`) {
		t.Errorf("%s", text)
	}
	if n := m.keeper.policies.used.Load(); n != 1 {
		t.Errorf("%d labels of policies are counted as used", n)
	}
	m.Policy("shop", "user", "user:gone").Record(tallyOf(ratelimit.OutcomeOK, 1, 40, 100))
	wantLines(t, scrape(t, m), `headgate_policy_decisions_total{domain="shop",outcome="ok",policy="user:gone",rule="user"} 1`)
}

// TestRemainingUnitsAreTheLowestOfLately: what is left is the lowest of the last one to two minutes,
// whatever scrapes there are, and nothing if nothing was decided.
func TestRemainingUnitsAreTheLowestOfLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lowest
		want := func(remaining int64) {
			t.Helper()
			got, ok := l.get(time.Now())
			if ok != (remaining >= 0) || ok && got.Remaining != remaining {
				t.Errorf("%v %v, want %d", got, ok, remaining)
			}
		}
		want(-1)
		l.note(time.Now(), ratelimit.Level{Remaining: 50, Limit: 100})
		l.note(time.Now(), ratelimit.Level{Remaining: 40, Limit: 1000}) // a smaller part
		l.note(time.Now(), ratelimit.Level{Remaining: 30, Limit: 100})
		want(40)
		time.Sleep(lowestOver)
		want(40)
		l.note(time.Now(), ratelimit.Level{Remaining: 90, Limit: 100})
		want(40)
		time.Sleep(lowestOver)
		want(90)
		time.Sleep(lowestOver)
		want(-1)
		l.note(time.Now(), ratelimit.Level{Remaining: 0, Limit: 100})
		time.Sleep(time.Hour)
		want(-1)
		l.note(time.Now(), ratelimit.Level{Remaining: 10, Limit: 100})
		l.note(time.Now().Add(-time.Hour), ratelimit.Level{Remaining: 20, Limit: 100}) // the clock stepped back
		l.note(time.Now().Add(-time.Hour), ratelimit.Level{Remaining: 30, Limit: 100})
		if got, ok := l.get(time.Now().Add(-time.Hour)); !ok || got.Remaining != 20 {
			t.Errorf("after a step of the clock: %v %v", got, ok)
		}
	})
}

// TestSeriesOfPoliciesAreBounded: policies beyond the bound count together, and get series of their
// own when rules go; the series of a rule go with it, or with its policy.
func TestSeriesOfPoliciesAreBounded(t *testing.T) {
	m := New("v1")
	const k, user = "{key: k, policy: 'k:{k}', rate_limit: {unit: hour, requests_per_unit: 1}}", "{key: user, policy: 'user:{user}', rate_limit: {unit: hour, requests_per_unit: 1}}"
	load := func(rules string) {
		m.RulesLoaded(rulesOf(t, "domain: shop\ndescriptors: ["+rules+"]"), time.Unix(1, 0))
	}
	load(k + "," + user)
	for i := range maxPolicies {
		m.Policy("shop", "user", fmt.Sprint("user:", i)).Record(tallyOf(ratelimit.OutcomeOK, 1, 1, 2))
	}
	late := m.Policy("shop", "k", "k:late")
	late.Record(tallyOf(ratelimit.OutcomeOK, 1, 1, 2))
	text := scrape(t, m)
	wantLines(t, text, `headgate_policy_decisions_total{domain="",outcome="ok",policy="",rule="(other)"} 1`)
	if n := strings.Count(text, "headgate_policy_limit_units{"); n > maxPolicies+1 {
		t.Errorf("%d series", n)
	}
	load(k)
	if strings.Contains(scrape(t, m), `rule="user"`) {
		t.Error("a rule that is gone has series")
	}
	late.Record(tallyOf(ratelimit.OutcomeOK, 1, 1, 2))
	wantLines(t, scrape(t, m), `headgate_policy_decisions_total{domain="shop",outcome="ok",policy="k:late",rule="k"} 1`)
	load("{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}")
	if strings.Contains(scrape(t, m), `policy="k:late"`) {
		t.Error("a rule that has no policy any more has series by policy")
	}
	if n := m.keeper.policies.used.Load(); n != 0 {
		t.Errorf("%d labels of policies are counted as used", n)
	}
}
