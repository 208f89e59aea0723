package ratelimit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const watchedRules = `domain: shop
descriptors:
- {key: tenant, rate_limit: {unit: hour, requests_per_unit: 4}}
- {key: quiet, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: closed, on_backend_error: deny, rate_limit: {unit: hour, requests_per_unit: 1}}
- key: model
  limits:
  - {name: burst, algorithm: token_bucket, rate: 1/s, burst: 2}
  - {name: daily, algorithm: fixed_window, rate: 100/d}
- key: flights
  concurrency: [{threshold: 1, name: full, response: {statusCode: 503}}]
`

// seenKeys is who was refused and who was near, as "refused KEY RULE COUNT" and "near KEY RULE THOUSANDTHS".
func (h *harness) seenKeys() string {
	var b strings.Builder
	refused, _ := h.Watch().Refused(int64(h.now), 5, 100)
	for _, s := range refused {
		fmt.Fprintf(&b, "refused %s %s %d\n", s.Name, s.Rule, s.Figure)
	}
	near, _ := h.Watch().Near(int64(h.now), 5, 100)
	for _, s := range near {
		fmt.Fprintf(&b, "near %s %s %d\n", s.Name, s.Rule, s.Figure)
	}
	return b.String()
}

// TestWhoIsRefusedAndWhoIsNear: a key is near when at most a quarter of its limit is left, and the limit that refuses
// is named.
func TestWhoIsRefusedAndWhoIsNear(t *testing.T) {
	h := setup(t, watchedRules)
	h.askDomain("shop", 1, desc("tenant=a"))
	h.askDomain("shop", 1, desc("tenant=a"))
	if got := h.seenKeys(); got != "" {
		t.Errorf("half a limit is used, and kept is %s", got)
	}
	for range 4 {
		h.askDomain("shop", 1, desc("tenant=a"), desc("tenant=other"))
	}
	for range 5 {
		h.askDomain("shop", 1, desc("quiet=q"))
		h.askDomain("shop", 1, desc("model=m"))
	}
	const want = "refused shop|model=m shop/model:burst 3\nrefused shop|tenant=a shop/tenant 2\n" +
		"near shop|model=m shop/model:burst 1000\nnear shop|quiet=q shop/quiet 1000\nnear shop|tenant=a shop/tenant 1000\n"
	if got := h.seenKeys(); got != want {
		t.Errorf("kept is\n%swant\n%s", got, want)
	}
}

// TestRefusalsHaveTheirCause, and what the request was called.
func TestRefusalsHaveTheirCause(t *testing.T) {
	h := setup(t, watchedRules)
	ask := func(id, of string) {
		req := &Request{Domain: "shop", RequestID: id, Owner: "envoy", ID: id, Descriptors: []Descriptor{desc(of)}}
		h.Decide(t.Context(), []*Request{req}, []*Response{new(Response)})
	}
	for _, of := range []string{"model=m", "model=m", "flights=f", "closed=c"} {
		ask("passes-"+of, of)
	}
	ask("r1", "model=m")
	ask("r2", "flights=f")
	h.be.err = errors.New("away")
	ask("r3", "closed=c")
	var got strings.Builder
	for _, r := range h.Watch().Refusals() {
		fmt.Fprintf(&got, "%s %s %s %s%s %v\n", r.RequestID, r.Key, r.Rule, r.Cause, r.Tier, r.Wait)
	}
	want := "r3 shop|closed=c shop/closed backend_error 1s\nr2 shop|flights=f shop/flights tierfull 1s\n" +
		"r1 shop|model=m shop/model:burst limit 1s\n"
	if got.String() != want {
		t.Errorf("the last refusals are\n%swant\n%s", &got, want)
	}
}

// TestShadowModeRefusesNobody, so nobody is listed.
func TestShadowModeRefusesNobody(t *testing.T) {
	h := setup(t, watchedRules, func(c *Config) { c.ShadowMode = true })
	for range 9 {
		h.askDomain("shop", 1, desc("tenant=a"))
	}
	if got := h.seenKeys(); strings.Contains(got, "refused") || len(h.Watch().Refusals()) > 0 {
		t.Errorf("kept is %s", got)
	}
}

// TestTrafficCountsAnswers, those that are refused, and those that failure policies give.
func TestTrafficCountsAnswers(t *testing.T) {
	h := setup(t, watchedRules)
	for range 6 {
		h.askDomain("shop", 1, desc("tenant=a"))
	}
	h.be.err = errors.New("away")
	h.askDomain("shop", 1, desc("tenant=a"))
	h.Decide(t.Context(), []*Request{{Domain: "shop"}}, []*Response{new(Response)}) // which is invalid
	traffic := h.Traffic()
	got := fmt.Sprint(traffic.Answers.Value(), traffic.Refused.Value(), traffic.ByPolicy.Value(), traffic.Last().IsZero())
	if got != "7 2 1 false" {
		t.Errorf("answers, refused, by policy: %s", got)
	}
}
