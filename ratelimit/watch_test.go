package ratelimit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/insight"
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

// A watched is a service with an insight.
type watched struct {
	*ratelimit.Harness
	*insight.Watch
}

func watch(t *testing.T, change ...func(*ratelimit.Config)) *watched {
	w := &watched{Watch: insight.NewWatch()}
	w.Harness = ratelimit.Setup(t, watchedRules, append(change, func(c *ratelimit.Config) {
		c.Sinks = []ratelimit.Sink{w.Watch}
	})...)
	return w
}

// ask asks about descriptors of domain shop, several times.
func (w *watched) ask(times int, entries ...string) {
	for range times {
		w.AskShop(entries...)
	}
}

// seenKeys is who was refused and who was near, as "refused KEY RULE COUNT" and "near KEY RULE THOUSANDTHS".
func (h *watched) seenKeys() string {
	var b strings.Builder
	refused, _ := h.Refused(int64(h.Instant()), 5, 100)
	for _, s := range refused {
		fmt.Fprintf(&b, "refused %s %s %d\n", s.Name, s.Rule, s.Figure)
	}
	near, _ := h.Near(int64(h.Instant()), 5, 100)
	for _, s := range near {
		fmt.Fprintf(&b, "near %s %s %d\n", s.Name, s.Rule, s.Figure)
	}
	return b.String()
}

// TestWhoIsRefusedAndWhoIsNear: a key is near when at most a quarter of its limit is left, and the limit that refuses
// is named.
func TestWhoIsRefusedAndWhoIsNear(t *testing.T) {
	h := watch(t)
	h.ask(2, "tenant=a")
	if got := h.seenKeys(); got != "" {
		t.Errorf("half a limit is used, and kept is %s", got)
	}
	h.ask(4, "tenant=a", "tenant=other")
	for range 5 {
		h.ask(1, "quiet=q")
		h.ask(1, "model=m")
	}
	const want = "refused shop|model=m shop/model:burst 3\nrefused shop|tenant=a shop/tenant 2\n" +
		"near shop|model=m shop/model:burst 1000\nnear shop|quiet=q shop/quiet 1000\nnear shop|tenant=a shop/tenant 1000\n"
	if got := h.seenKeys(); got != want {
		t.Errorf("kept is\n%swant\n%s", got, want)
	}
}

// TestRefusalsHaveTheirCause, and what the request was called.
func TestRefusalsHaveTheirCause(t *testing.T) {
	h := watch(t)
	ask := func(id, of string) {
		req := &ratelimit.Request{Domain: "shop", RequestID: id, Owner: "envoy", ID: id,
			Descriptors: []ratelimit.Descriptor{ratelimit.Desc(of)}}
		h.Decide(t.Context(), []*ratelimit.Request{req}, []*ratelimit.Response{new(ratelimit.Response)})
	}
	for _, of := range []string{"model=m", "model=m", "flights=f", "closed=c"} {
		ask("passes-"+of, of)
	}
	ask("r1", "model=m")
	ask("r2", "flights=f")
	h.Fail(errors.New("away"))
	ask("r3", "closed=c")
	var got strings.Builder
	for _, r := range h.Refusals() {
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
	h := watch(t, func(c *ratelimit.Config) { c.ShadowMode = true })
	h.ask(9, "tenant=a")
	if got := h.seenKeys(); strings.Contains(got, "refused") || len(h.Refusals()) > 0 {
		t.Errorf("kept is %s", got)
	}
}

// TestTrafficCountsAnswers, those that are refused, and those that failure policies give.
func TestTrafficCountsAnswers(t *testing.T) {
	h := watch(t)
	h.ask(6, "tenant=a")
	h.Fail(errors.New("away"))
	h.ask(1, "tenant=a")
	h.Decide(t.Context(), []*ratelimit.Request{{Domain: "shop"}}, // which is invalid
		[]*ratelimit.Response{new(ratelimit.Response)})
	traffic := &h.Traffic
	got := fmt.Sprint(traffic.Answers.Value(), traffic.Refused.Value(), traffic.ByPolicy.Value(), traffic.Last().IsZero())
	if got != "7 2 1 false" {
		t.Errorf("answers, refused, by policy: %s", got)
	}
}
