package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// recording has policies, and metrics of keys.
func recording(t *testing.T, keys ...string) func(*Config) {
	asked, err := policies.ParsePatterns(keys)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Policies, c.PolicyMetrics = new(policies.Set), asked }
}

// by wants that a policy of rule d/user has decided n descriptors with an outcome.
func (h *harness) by(policy, outcome string, n int) {
	h.Helper()
	if got := h.Count("d/user by " + policy + " " + outcome); got != n {
		h.Errorf("%s: %s %d times, want %d", policy, outcome, got, n)
	}
}

// TestDecisionsAreRecordedByPolicy: each decision is recorded under the policy that it was made by:
// under its key if that is the rule's name, the default or asked for.
func TestDecisionsAreRecordedByPolicy(t *testing.T) {
	h := setup(t, policyRules, recording(t, "user:big", "user:gold-*"))
	h.left("user=a", 4)
	h.by(PolicyOfRule, "ok", 1)
	h.put(map[string]policies.Figures{"*": per(limit.SlidingWindow, 10, 60)})
	h.left("user=b", 9)
	h.by("*", "ok", 1)
	h.put(map[string]policies.Figures{"d/user:main": per(limit.SlidingWindow, 20, 60),
		"d/user": per(limit.SlidingWindow, 30, 60)})
	h.left("user=c", 19)
	h.by("d/user:main", "ok", 1)
	h.put(map[string]policies.Figures{
		"user:big": per(limit.SlidingWindow, 2, 60), "user:gold-1": per(limit.SlidingWindow, 3, 60),
		"user:small": per(limit.SlidingWindow, 0, 60),
	})
	h.left("user=big", 1)
	h.left("user=big", 0)
	h.left("user=big", -1)
	h.by("user:big", "ok", 2)
	h.by("user:big", "over_limit", 1)
	h.left("user=gold-1", 2)
	h.by("user:gold-1", "ok", 1)
	h.left("user=small", -1)
	h.by(PolicyOfKeys, "over_limit", 1)
	h.left("plain=x", 4)
	want := []string{"(rule) 4/5", "* 9/10", "d/user:main 19/20", "user:big 1/2", "user:big 0/2", "user:big 0/2",
		"user:gold-1 2/3", "(keys) 0/0"}
	if !slices.Equal(h.counts.records, want) {
		t.Errorf("recorded %q, want %q", h.counts.records, want)
	}
}

// TestPolicyThatCannotBeUsedIsNotRecorded: what the rule's own limit decides is recorded as that.
func TestPolicyThatCannotBeUsedIsNotRecorded(t *testing.T) {
	h := setup(t, policyRules, recording(t, "*"), func(c *Config) { delete(c.Caps.Algorithms, limit.SlidingLog) })
	h.put(map[string]policies.Figures{"user:a": per(limit.SlidingLog, 100, 60)})
	h.left("user=a", 4)
	h.by(PolicyOfRule, "ok", 1)
	h.by("user:a", "ok", 0)
}

// TestPoliciesThatCannotBeUsedFloodNoLog: each client may have one with other figures.
func TestPoliciesThatCannotBeUsedFloodNoLog(t *testing.T) {
	h := setup(t, policyRules, withPolicies, func(c *Config) { delete(c.Caps.Algorithms, limit.SlidingLog) })
	figures := map[string]policies.Figures{}
	for i := range 2000 {
		figures[fmt.Sprint("user:u", i)] = per(limit.SlidingLog, int64(i), 60)
	}
	h.put(figures)
	began := time.Now()
	for i := range 2000 {
		h.left(fmt.Sprint("user=u", i), 4)
	}
	most := unusablePerSecond * (2 + int(time.Since(began)/time.Second))
	if n := strings.Count(h.log.String(), "cannot be used"); n == 0 || n > most {
		t.Errorf("%d lines, want at most %d", n, most)
	}
}

// TestKeysOfARuleAreBounded: of the keys that patterns name the first are recorded one by one, and
// the rest together; keys without a policy take no room.
func TestKeysOfARuleAreBounded(t *testing.T) {
	h := setup(t, policyRules, recording(t, "*"))
	h.put(map[string]policies.Figures{"user:u0": per(limit.SlidingWindow, 5, 60)})
	for i := range 3 * maxKeyPolicies {
		h.ask(desc(fmt.Sprint("user=nobody", i)))
	}
	h.by(PolicyOfRule, "ok", 3*maxKeyPolicies)
	for i := range maxKeyPolicies + 50 {
		h.put(map[string]policies.Figures{fmt.Sprint("user:u", i): per(limit.SlidingWindow, 5, 60)})
		h.ask(desc(fmt.Sprint("user=u", i)))
	}
	h.by("user:u0", "ok", 1)
	h.by(fmt.Sprint("user:u", maxKeyPolicies-1), "ok", 1)
	h.by(fmt.Sprint("user:u", maxKeyPolicies), "ok", 0)
	h.by(PolicyOfKeys, "ok", 50)
	h.ask(desc("user=u0"))
	h.by("user:u0", "ok", 2)
}

// used asks under the policies of some keys, which it makes first.
func (h *harness) used(from, to int) {
	h.Helper()
	figures := map[string]policies.Figures{}
	for i := from; i < to; i++ {
		figures[fmt.Sprint("user:u", i)] = per(limit.SlidingWindow, 5, 60)
	}
	h.put(figures)
	for i := from; i < to; i++ {
		h.ask(desc(fmt.Sprint("user=u", i)))
	}
}

// TestKeysTakePlacesWhenTheyDecide: a request that is refused as malformed, and a question what is
// counted, take no place of the keys that have series.
func TestKeysTakePlacesWhenTheyDecide(t *testing.T) {
	h := setup(t, policyRules, recording(t, "*"))
	figures, many := map[string]policies.Figures{}, []Descriptor{}
	for i := range 3 * maxKeyPolicies {
		figures[fmt.Sprint("user:bad", i)] = per(limit.SlidingWindow, 5, 60)
		many = append(many, desc(fmt.Sprint("user=bad", i)))
	}
	h.put(figures)
	if r := h.ask(many...); r.Err == nil {
		t.Fatal("a request with 300 limits is accepted")
	}
	if _, err := h.Usage(t.Context(), []string{"d"}, [][]descriptors.Entry{desc("user=bad0").Entries}); err != nil {
		t.Fatal(err)
	}
	h.used(0, maxKeyPolicies+1)
	h.by(fmt.Sprint("user:u", maxKeyPolicies-1), "ok", 1)
	h.by(PolicyOfKeys, "ok", 1)
}

// TestRemovedPoliciesGiveTheirPlacesBack: also those that a rule had before it was changed.
func TestRemovedPoliciesGiveTheirPlacesBack(t *testing.T) {
	h := setup(t, policyRules, recording(t, "*"))
	h.used(0, maxKeyPolicies)
	changed := strings.Replace(policyRules, "limit: 5", "limit: 6", 1)
	if err := h.SetRules(mustLoad(t, changed)); err != nil {
		t.Fatal(err)
	}
	h.used(maxKeyPolicies, maxKeyPolicies+1)
	h.by(PolicyOfKeys, "ok", 1)
	h.put(map[string]policies.Figures{"user:u7": {}, "user:u8": {}})
	h.used(maxKeyPolicies+1, maxKeyPolicies+4)
	h.by(PolicyOfKeys, "ok", 2)
	for i, want := range map[int]int{6: 0, 7: 1, 8: 1, 9: 0} {
		if kept := h.counts.byLabel[ruleLabel{"d", "user"}].policies[fmt.Sprint("user:u", i)]; (kept == nil) != (want == 1) {
			t.Errorf("user:u%d has series: %v, want it forgotten %d times", i, kept != nil, want)
		}
	}
	h.by("user:u6", "ok", 1)
	h.ask(desc("user=u6"))
	h.by("user:u6", "ok", 2)
	h.used(7, 8)
	h.by(PolicyOfKeys, "ok", 3)
}

// TestAPolicyThatIsPutAgainIsCountedWhereItIsSeen: a key that some requests have as their own may be the rule's name
// for others, which count in the same series.
func TestAPolicyThatIsPutAgainIsCountedWhereItIsSeen(t *testing.T) {
	h := setup(t, strings.Replace(policyRules, "user:{user}", "d/{user}", 1), recording(t, "*"))
	seen := &counted{T: t, Metrics: h.counts.Metrics}
	shared := map[string]policies.Figures{"d/user": per(limit.SlidingWindow, 1000, 60)}
	h.put(shared)
	h.ask(desc("user=user"))
	h.ask(desc("user=other"))
	seen.want("headgate_policy_decisions_total domain=d rule=user policy=d/user outcome=ok 2")
	h.put(map[string]policies.Figures{"d/user": {}})
	for i := range 2 * maxKeyPolicies {
		h.put(map[string]policies.Figures{fmt.Sprint("d/u", i): per(limit.SlidingWindow, 5, 60)})
		h.ask(desc(fmt.Sprint("user=u", i)))
	}
	h.put(shared)
	h.ask(desc("user=other"))
	h.ask(desc("user=user"))
	seen.want("headgate_policy_decisions_total domain=d rule=user policy=d/user outcome=ok 4")
}

// TestSliceIsRecordedOnceByPolicy: a slice is one record for each policy, with the smallest part of
// a limit that is left; more policies than a tally has places for lose nothing.
func TestSliceIsRecordedOnceByPolicy(t *testing.T) {
	h := setup(t, policyRules, recording(t, "user:u*"))
	figures := map[string]policies.Figures{"user:x": per(limit.SlidingWindow, 1000, 60),
		"user:y": per(limit.SlidingWindow, 2, 60)}
	for i := range 9 {
		figures[fmt.Sprint("user:u", i)] = per(limit.SlidingWindow, 100, 60)
	}
	h.put(figures)
	slice := func(users ...string) {
		h.counts.records = nil
		reqs, resps := make([]*Request, len(users)), make([]*Response, len(users))
		for i, u := range users {
			reqs[i], resps[i] = &Request{Domain: "d", Descriptors: []Descriptor{desc("user=" + u)}}, new(Response)
		}
		h.Decide(context.Background(), reqs, resps)
	}
	slice("x", "y", "x", "x")
	if want := []string{"(keys) 1/2"}; !slices.Equal(h.counts.records, want) {
		t.Errorf("recorded %q, want %q", h.counts.records, want)
	}
	slice("u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8", "u0")
	for i := range 9 {
		h.by(fmt.Sprint("user:u", i), "ok", map[bool]int{true: 2, false: 1}[i == 0])
	}
	if all := strings.Join(h.counts.records, " "); !strings.Contains(all, "user:u8 99/100") {
		t.Errorf("recorded %s", all)
	}
}

// TestFailuresAreRecordedByPolicy: what a failure policy answers says nothing of what is left.
func TestFailuresAreRecordedByPolicy(t *testing.T) {
	h := setup(t, policyRules, recording(t))
	h.Fail(errors.New("away"))
	h.ask(desc("user=a"))
	h.by(PolicyOfRule, "failed_open", 1)
	if want := []string{"(rule) 0/0"}; !slices.Equal(h.counts.records, want) {
		t.Errorf("recorded %q, want %q", h.counts.records, want)
	}
}

// TestUsageIsNotRecorded: to ask what is counted is no decision.
func TestUsageIsNotRecorded(t *testing.T) {
	h := setup(t, policyRules, recording(t))
	if _, err := h.Usage(t.Context(), []string{"d"}, [][]descriptors.Entry{desc("user=a").Entries}); err != nil {
		t.Fatal(err)
	}
	if len(h.counts.records) != 0 {
		t.Errorf("recorded %q", h.counts.records)
	}
}

// TestSeriesOfPoliciesStayBounded: while rules change, and policies come and go whose series make room for others.
func TestSeriesOfPoliciesStayBounded(t *testing.T) {
	h := setup(t, policyRules, recording(t, "user:*"))
	const callers, each, keys = 4, 500, 2 * maxKeyPolicies
	var all, changes sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				h.Decide(t.Context(), []*Request{{Domain: "d", Descriptors: []Descriptor{
					desc(fmt.Sprint("user=u", (i*callers+c)%keys))}}}, []*Response{new(Response)})
			}
		})
	}
	done := make(chan struct{})
	changes.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			figures := map[string]policies.Figures{}
			for i := range keys {
				figures[fmt.Sprint("user:u", i)] = per(limit.SlidingWindow, 5, 60)
				if i%3 == n%3 {
					figures[fmt.Sprint("user:u", i)] = policies.Figures{} // is removed
				}
			}
			h.put(figures)
			changed := strings.Replace(policyRules, "limit: 5", fmt.Sprint("limit: ", 5+n%2), 1)
			if err := h.SetRules(mustLoad(t, changed)); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	close(done)
	changes.Wait()
	l, own := h.counts.byLabel[ruleLabel{"d", "user"}], 0
	for _, p := range l.policies {
		if p.own {
			own++
		}
	}
	if own != l.keys || own < 1 || own > maxKeyPolicies || len(l.policies) > own+2 {
		t.Errorf("%d series, %d of keys, counted as %d", len(l.policies), own, l.keys)
	}
	if err := h.SetRules(mustLoad(t, "domain: d")); err != nil {
		t.Fatal(err)
	}
	if m := h.counts.Metrics; !m.bounds.policies.Take(maxPolicies) || len(m.byLabel) != 0 {
		t.Errorf("series are left of rules that are gone: %v", m.byLabel)
	}
}
