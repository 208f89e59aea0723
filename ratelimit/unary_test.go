package ratelimit

import (
	"context"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/internal/wire/unary"
)

func (h *harness) countCall(_ time.Duration, r CallResult, n int) {
	for range n {
		h.counts.add("call " + r.String())
	}
}

func protoRequest(domain string, entries ...string) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: domain}
	for _, text := range entries {
		d := new(common.RateLimitDescriptor)
		for _, e := range desc(text).Entries {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// TestLateCallsEndRequests: a call that nobody waits for ends the requests in flight
// that its message ends. Other such calls cost next to nothing: they are not decoded.
func TestLateCallsEndRequests(t *testing.T) {
	h := setup(t, inFlightRules)
	abandoned := UnaryHandler(h.Service, h.countCall).Abandoned
	late := func(entries string, negative bool) *unary.Call {
		m := protoRequest("d", entries)
		m.Descriptors[0].IsNegativeHits = negative
		message, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return &unary.Call{Message: message}
	}
	token := h.acquire("tenant=a")
	h.ask(desc("anon=x"))
	h.wantInFlight(2)
	abandoned(late(OpKey+"=release,"+LeaseEntry+"="+token, false))
	abandoned(late("anon=x", true))
	ordinary := late("tenant=b", false)
	if n := testing.AllocsPerRun(100, func() { abandoned(ordinary) }); n != 0 {
		t.Errorf("%v objects are allocated for a call that ends nothing, want 0", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	h.Close(ctx) // returns when all is given back
	h.wantInFlight(0)
}

// What finds no worker is answered by policy, at once.
func TestCallsAreAnsweredWithoutTheBackendWhenShed(t *testing.T) {
	h := setup(t, failing, func(c *Config) { c.Caps = modelCaps(false) })
	shed := UnaryHandler(h.Service, h.countCall).Shed
	var calls []*unary.Call
	for _, key := range []string{"allow", "deny"} {
		message, err := proto.Marshal(protoRequest("d", key+"=1"))
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, &unary.Call{Message: message})
	}
	calls = append(calls, &unary.Call{Message: []byte{0xff}}, &unary.Call{Message: calls[0].Message, Deadline: time.Unix(1, 0)})
	shed(calls)
	for i, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT} {
		answer := new(rls.RateLimitResponse)
		if err := proto.Unmarshal(calls[i].Reply, answer); err != nil || answer.OverallCode != want || answer.DynamicMetadata.Fields["degraded"] == nil {
			t.Errorf("call %d: %v, %v", i, answer, err)
		}
	}
	if calls[2].Err == nil || calls[2].Err.Code != unary.InvalidArgument || calls[3].Err == nil || calls[3].Err.Code != unary.DeadlineExceeded {
		t.Errorf("malformed: %v, late: %v", calls[2].Err, calls[3].Err)
	}
	if h.be.takes != 0 {
		t.Errorf("the backend was asked %d times", h.be.takes)
	}
}
