package ratelimit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

const nearRules = `
domain: d
descriptors:
  - key: user
    policy: user:{user}
    request_headers: {X-Budget: near}
    limits: [{name: day, algorithm: fixed_window, limit: 10, window: 1h, warn_at: 80%}]
  - key: two
    request_headers: {x-budget: two, x-model: small}
    limits:
      - {name: rate, algorithm: token_bucket, rate: 10/s, warn_at: 100%}
      - {name: month, algorithm: sliding_window, limit: 10, window: 1h, warn_at: 50%}
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: to, value: x, choose: model, rate_limit: {unit: hour, requests_per_unit: 1, warn_at: 1%}}
  - {key: to, value: y, choose: model, rate_limit: {unit: hour, requests_per_unit: 9}}
`

// near renders what an answer says of limits that are nearly used up: the metadata, and the headers of the request.
func near(t *testing.T, r *Response) string {
	t.Helper()
	list := []string{meta(t, r, "near")}
	for _, h := range r.RequestHeaders {
		list = append(list, h.Name+"="+h.Value)
	}
	return strings.Join(list, " ")
}

func (h *harness) wantNear(r *Response, want string) {
	h.Helper()
	if got := near(h.T, r); got != want {
		h.Errorf("%s: %q, want %q", summary(r), got, want)
	}
}

func (h *harness) warnings() int { return strings.Count(h.log.String(), "a limit is nearly used up") }

func (h *harness) wantWarnings(n int) {
	h.Helper()
	if got := h.warnings(); got != n {
		h.Errorf("%d warnings, want %d:\n%s", got, n, h.log)
	}
	if got := int(h.counts.nearlyUsed(h.Rules().Rules()[0]).Value()); got > n {
		h.Errorf("%d keys are counted, want at most %d", got, n)
	}
}

// From its part on, a limit says that it is nearly used up in each answer, and warns once of each key in each window.
func TestLimitsWarnOnceInAWindow(t *testing.T) {
	h := setup(t, nearRules, withPolicies)
	for window := range 3 {
		for _, user := range []string{"a", "b"} {
			for n := 1; n <= 12; n++ {
				want := ""
				if n >= 8 {
					want = "d/user:day x-budget=near"
				}
				if n > 10 {
					want = "d/user:day" // a refused request goes nowhere
				}
				h.wantNear(h.ask(desc("user="+user)), want)
			}
		}
		h.wantWarnings(2 * (window + 1))
		h.now = h.now.Add(time.Hour)
	}
	if n := h.counts.nearlyUsed(h.Rules().Rules()[0]).Value(); n != 6 {
		t.Errorf("%d are counted, want 6", n)
	}
	if !strings.Contains(h.log.String(), "rule=d/user:day warn_at_percent=80 key=") {
		t.Error(h.log)
	}
}

// Of several limits the first says so; a header that two rules add is the first one's.
func TestSeveralLimitsWarn(t *testing.T) {
	h := setup(t, nearRules)
	for n := 1; n <= 5; n++ {
		want := ""
		if n == 5 {
			want = "d/two:month x-budget=two x-model=small"
		}
		h.wantNear(h.ask(desc("two=t"), desc("plain=p")), want)
		h.now = h.now.Add(time.Second)
	}
	h.ask(desc("user=u").withHits(8))
	h.wantNear(h.ask(desc("user=u"), desc("two=t").withHits(0)), "d/two:month x-budget=near x-model=small")
}

// A policy's limit warns at the same part of its own units; a candidate that is not chosen does not.
func TestWhoWarns(t *testing.T) {
	h := setup(t, nearRules, withPolicies)
	h.put(map[string]policies.Figures{"user:big": per(limit.FixedWindow, 100, 3600)})
	h.wantNear(h.ask(desc("user=big").withHits(79)), "")
	h.wantNear(h.ask(desc("user=big")), "d/user:day x-budget=near")
	h.wantNear(h.ask(desc("to=x"), desc("to=y")), "d/to_x")
	h.wantNear(h.ask(desc("to=x"), desc("to=y")), "")
	r := new(Response)
	h.Decide(t.Context(), []*Request{{Domain: "d", InProcess: true, Descriptors: []Descriptor{desc("user=big")}}},
		[]*Response{r})
	if r.Inside.Near != "d/user:day" {
		t.Errorf("inside: %q", r.Inside.Near)
	}
}

// However many keys warn, memory is the same, and few lines are logged.
func TestManyKeysWarn(t *testing.T) {
	h := setup(t, nearRules)
	for i := range 5000 {
		h.ask(desc(fmt.Sprint("user=", i)).withHits(9))
	}
	if n := h.warnings(); n == 0 || n > 5*warningsPerSecond {
		t.Errorf("%d lines of 5,000 keys", n)
	}
	if n := h.counts.nearlyUsed(h.Rules().Rules()[0]).Value(); n != 5000 {
		t.Errorf("%d keys are counted", n)
	}
}

// A clock that steps back warns again; until then a key warns once, whatever its window's length.
func TestWarnedKeys(t *testing.T) {
	w, now := newWarnedKeys(), start2026
	for _, c := range []struct {
		group string
		at    time.Duration
		want  bool
	}{
		{"a", 0, true}, {"a", time.Second, false}, {"b", time.Second, true}, {"a", 59 * time.Second, false},
		{"a", 61 * time.Second, true}, {"a", -time.Hour, true}, {"a", -time.Hour + time.Second, false},
	} {
		if got := w.add("rule", c.group, now.Add(c.at), now.Add(c.at+time.Minute).Add(-c.at%time.Minute)); got != c.want {
			t.Errorf("%s after %v: %v, want %v", c.group, c.at, got, c.want)
		}
	}
	if !w.add("another rule", "a", now, now.Add(time.Minute)) {
		t.Error("two limits of a key are one")
	}
}
