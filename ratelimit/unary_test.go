package ratelimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/ratelimit"
)

// TestLateCallsEndRequests: a call that nobody waits for ends the requests in flight
// that its message ends. Other such calls cost next to nothing: they are not decoded.
func TestLateCallsEndRequests(t *testing.T) {
	h := ratelimit.Setup(t, ratelimit.InFlightRules)
	abandoned := transport.Handler(h.Service, transport.ShouldRateLimit, countCall(h)).Abandoned
	late := func(entries string, negative bool) *unary.Call {
		m := ratelimit.ProtoRequest("d", entries)
		m.Descriptors[0].IsNegativeHits = negative
		message, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return &unary.Call{Message: message}
	}
	token := h.Acquire("tenant=a")
	h.Ask("anon=x")
	h.WantInFlight(2)
	abandoned(late(ratelimit.OpKey+"=release,"+ratelimit.LeaseEntry+"="+token, false))
	abandoned(late("anon=x", true))
	ordinary := late("tenant=b", false)
	if n := testing.AllocsPerRun(100, func() { abandoned(ordinary) }); n != 0 {
		t.Errorf("%v objects are allocated for a call that ends nothing, want 0", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	h.Close(ctx) // returns when all is given back
	h.WantInFlight(0)
}

// What finds no worker is answered by policy, at once.
func TestCallsAreAnsweredWithoutTheBackendWhenShed(t *testing.T) {
	h := ratelimit.Setup(t, ratelimit.FailingRules, func(c *ratelimit.Config) { c.Caps = ratelimit.ModelCaps(false) })
	shed := transport.Handler(h.Service, transport.ShouldRateLimit, countCall(h)).Shed
	var calls []*unary.Call
	for _, key := range []string{"allow", "deny"} {
		message, err := proto.Marshal(ratelimit.ProtoRequest("d", key+"=1"))
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, &unary.Call{Message: message})
	}
	calls = append(calls, &unary.Call{Message: []byte{0xff}},
		&unary.Call{Message: calls[0].Message, Deadline: time.Unix(1, 0)})
	shed(calls)
	for i, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT} {
		answer := new(rls.RateLimitResponse)
		if err := proto.Unmarshal(calls[i].Reply, answer); err != nil || answer.OverallCode != want ||
			answer.DynamicMetadata.Fields["degraded"] == nil {
			t.Errorf("call %d: %v, %v", i, answer, err)
		}
	}
	if calls[2].Err == nil || calls[2].Err.Code != unary.InvalidArgument || calls[3].Err == nil ||
		calls[3].Err.Code != unary.DeadlineExceeded {
		t.Errorf("malformed: %v, late: %v", calls[2].Err, calls[3].Err)
	}
	if h.Takes() != 0 {
		t.Errorf("the backend was asked %d times", h.Takes())
	}
}

// TestSliceIsCountedOnce: the calls of a slice that end alike are one observation,
// and one write of their rule's counter.
func TestSliceIsCountedOnce(t *testing.T) {
	h := ratelimit.Setup(t, "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 30}}\n")
	observed := map[ratelimit.CallResult][]int{}
	handler := transport.Handler(h.Service, transport.ShouldRateLimit,
		func(_ time.Duration, r ratelimit.CallResult, calls int) { observed[r] = append(observed[r], calls) })
	message := messageOf("d", "a")
	var calls []*unary.Call
	for range 50 {
		calls = append(calls, &unary.Call{Message: message})
	}
	handler.Inline(context.Background(), calls)
	if got := fmt.Sprint(observed); got != "map[ok:[30] over_limit:[20]]" {
		t.Errorf("observed %s", got)
	}
	for name, want := range map[string]int{"d/k ok": 30, "d/k over_limit": 20, "d/k refused by 1": 20} {
		if got := h.Count(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
