package ratelimit_test

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/ratelimit"
)

// TestGrantKeepsNoMessage has leases granted by large messages through the
// handler of package unary: what is kept for their undo, and in pools, is small.
func TestGrantKeepsNoMessage(t *testing.T) {
	h := ratelimit.Setup(t, ratelimit.InFlightRules)
	handler := transport.Handler(h.Service, transport.ShouldRateLimit, func(time.Duration, ratelimit.CallResult, int) {})
	message := func(i int) []byte {
		entry := func(k, v string) *common.RateLimitDescriptor {
			return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: k, Value: v}}}
		}
		b, err := proto.Marshal(&rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
			entry("tenant", strconv.Itoa(i)), entry("unknown", strings.Repeat("x", 200<<10)),
		}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const n = 200
	var undo []func()
	before := liveBytes()
	for i := 0; i < n; i += 10 {
		var calls []*unary.Call
		for j := range 10 {
			calls = append(calls, &unary.Call{Message: message(i + j)})
		}
		serveCalls(handler, calls)
		for _, c := range calls {
			if c.Err != nil || c.Undo == nil {
				t.Fatalf("no lease is granted: %+v", c.Err)
			}
			if c.UndoSize < 100 || c.UndoSize > 1000 {
				t.Fatalf("the undo keeps %d bytes", c.UndoSize)
			}
			undo = append(undo, c.Undo)
		}
	}
	grown := liveBytes() - before
	if grown > n*10<<10 {
		t.Errorf("%d granted leases keep %d KiB alive, want at most 10 KiB each", n, grown>>10)
	}
	for _, f := range undo {
		f()
	}
}

// TestUndoSizeCountsReservations: what is kept for the undo of a reservation under many limits is counted.
func TestUndoSizeCountsReservations(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("domain: d\ndescriptors:\n- key: user\n  reserve: {amount: 1}\n  limits:\n")
	for i := range 40 {
		rules.WriteString("  - {name: l" + strconv.Itoa(i) + ", algorithm: fixed_window, limit: 100000, window: 1h}\n")
	}
	h := ratelimit.Setup(t, rules.String())
	const n = 200
	var undo []func()
	size, before := 0, liveBytes()
	for range n {
		resp := new(ratelimit.Response)
		h.Decide(t.Context(), []*ratelimit.Request{{Domain: "d", Descriptors: []ratelimit.Descriptor{
			{Entries: []descriptors.Entry{{Key: "user", Value: "a"}}}}}}, []*ratelimit.Response{resp})
		f, bytes := h.Undo(resp)
		undo, size = append(undo, f), size+bytes
	}
	if grown := int(liveBytes() - before); grown > 2*size {
		t.Errorf("%d undos keep %d KiB alive, of which %d are counted", n, grown>>10, size>>10)
	}
	for _, f := range undo {
		f()
	}
}

// serveCalls has calls answered as package unary does.
func serveCalls(h unary.Handler, calls []*unary.Call) {
	if h.Inline != nil {
		calls = h.Inline(context.Background(), calls)
	}
	if len(calls) > 0 {
		h.Serve(context.Background(), calls)
	}
}

func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
