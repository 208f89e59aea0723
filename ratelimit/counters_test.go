package ratelimit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/wire/unary"
)

// writes are a counter and how often it was written.
type writes struct{ sum, times int64 }

func (w *writes) Count(n int64) { w.sum, w.times = w.sum+n, w.times+1 }

// TestTallyLosesNothing: however many counters a slice has, each has its sum in the
// end, and one that all calls share is written once.
func TestTallyLosesNothing(t *testing.T) {
	var one tally
	counters := make([]writes, 30)
	list := make([]HitCounter, len(counters))
	for i := range counters {
		list[i] = &counters[i]
	}
	for range 10 {
		one.add(&list[0])
	}
	one.flush()
	one.flush()
	if counters[0] != (writes{10, 1}) {
		t.Errorf("one counter: %+v", counters[0])
	}
	for range 10 {
		for i := range list {
			one.add(&list[i])
		}
	}
	one.flush()
	for i, c := range counters {
		want := int64(10)
		if i == 0 {
			want = 20
		}
		if c.sum != want {
			t.Errorf("counter %d: %+v, want a sum of %d", i, c, want)
		}
	}
}

// TestSliceIsCountedOnce: the calls of a slice that end alike are one observation,
// and one write of their rule's counter.
func TestSliceIsCountedOnce(t *testing.T) {
	h := setup(t, "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: hour, requests_per_unit: 30}}\n")
	observed := map[CallResult][]int{}
	handler := UnaryHandler(h.Service, func(_ time.Duration, r CallResult, calls int) { observed[r] = append(observed[r], calls) })
	e := appendStringField(appendStringField(nil, fieldEntryKey, "user"), fieldEntryValue, "a")
	d := appendBytesField(nil, fieldDescriptorEntries, e)
	message := appendBytesField(appendStringField(nil, fieldRequestDomain, "d"), fieldRequestDescriptors, d)
	var calls []*unary.Call
	for range 50 {
		calls = append(calls, &unary.Call{Message: message})
	}
	handler.Inline(context.Background(), calls)
	if got := fmt.Sprint(observed); got != "map[ok:[30] over_limit:[20]]" {
		t.Errorf("observed %s", got)
	}
	for name, want := range map[string]int{"d/user ok": 30, "d/user over_limit": 20, "d/user refused by 1": 20} {
		if got := h.counts.count(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
