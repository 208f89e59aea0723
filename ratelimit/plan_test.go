package ratelimit

import (
	"fmt"
	"strings"
	"testing"
)

// TestRequestOfTooManyLimitsIsInvalid, and costs no more than one that fits: the
// model backend decides up to 64 limits at once.
func TestRequestOfTooManyLimitsIsInvalid(t *testing.T) {
	var limits []string
	for i := range 32 {
		limits = append(limits, fmt.Sprintf("{name: l%d, algorithm: fixed_window, limit: 5, window: 1m}", i))
	}
	h := setup(t, "domain: d\ndescriptors:\n- {key: a, limits: ["+strings.Join(limits, ", ")+"]}\n")
	list := []Descriptor{desc("a=1"), desc("a=2")}
	if got := summary(h.ask(list...)); got != "OK: ok/4 ok/4" {
		t.Errorf("64 limits: %s", got)
	}
	for i := range 200 {
		list = append(list, desc(fmt.Sprint("a=", i)))
	}
	var req Request
	req.Domain, req.Descriptors = "d", list
	b := &Batch{engine: &h.engine, rules: h.rules.Load()}
	c := &Call{Request: &req, Response: &Response{Statuses: make([]Status, len(list))}}
	if err := c.plan(b); err == nil || err.Message != "the descriptors match more than 64 limits" {
		t.Errorf("more than 64 limits: %v", err)
	}
	if len(c.Ops) > 64 || cap(c.Ops) > 256 {
		t.Errorf("the call holds %d ops, with room for %d", len(c.Ops), cap(c.Ops))
	}
}
