package ratelimit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnknownDomainsAreCounted: each with its calls, since when, and who called last; a flood of names is one more.
func TestUnknownDomainsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t, coveredRules, unlogged)
		start := time.Now()
		h.askDomain("shopp", 1, desc("tenant=a"))
		time.Sleep(time.Minute)
		h.askDomain("shopp", 1, desc("tenant=a"), desc("tenant=b"))
		h.askDomain("shop", 1, desc("tenant=a"))
		list := h.UnknownDomains()
		if len(list) != 1 || list[0].Name != "shopp" || list[0].Calls != 2 || !list[0].First.Equal(start) ||
			list[0].Last.Sub(start) != time.Minute {
			t.Errorf("got %+v", list)
		}
		for i := range 3 * maxUnknown {
			h.askDomain(fmt.Sprintf("d%d", i), 1, desc("tenant=a"))
		}
		list = h.UnknownDomains()
		if len(list) != maxUnknown+1 || list[0].Name != Others || list[0].Calls != 2*maxUnknown+1 {
			t.Errorf("%d domains, the first %+v", len(list), list[0])
		}
	})
}

// TestUnknownDomainsOfNow: a domain that rules have meanwhile is not named, and the caller is.
func TestUnknownDomainsOfNow(t *testing.T) {
	h := setup(t, coveredRules, unlogged)
	req := Request{Domain: "later", Descriptors: []Descriptor{desc("tenant=a")}, Hits: 1, Owner: "node-1",
		Peer: "spiffe://a"}
	var resp Response
	h.Decide(t.Context(), []*Request{&req}, []*Response{&resp})
	if list := h.UnknownDomains(); len(list) != 1 || list[0].Caller != "node-1" {
		t.Errorf("got %+v", list)
	}
	const rules = "domain: later\ndescriptors: [{key: tenant, rate_limit: {unlimited: true}}]\n"
	if err := h.SetRules(mustLoad(t, rules)); err != nil {
		t.Fatal(err)
	}
	if list := h.UnknownDomains(); len(list) != 0 {
		t.Errorf("after the rules came: %+v", list)
	}
}

// meets is a [Sink] that counts calls, and those that meet no rule.
type meets struct{ calls, none int }

func (m *meets) See(_ *Batch, c *Call) {
	m.calls++
	if c.MeetsNoRule() {
		m.none++
	}
}

// TestCallsThatMeetNoRule: of an unknown domain, or with descriptors that no rule matches; one that a rule matches is
// enough.
func TestCallsThatMeetNoRule(t *testing.T) {
	var m meets
	h := setup(t, coveredRules, unlogged, func(c *Config) { c.Sinks = append(c.Sinks, &m) })
	h.askDomain("shopp", 1, desc("tenant=a"))
	h.askDomain("shop", 1, desc("tenantt=a"))
	h.askDomain("shop", 1, desc("tenantt=a"), desc("tenant=a"))
	h.askDomain("shop", 1, desc("free=a"))
	if m != (meets{4, 2}) {
		t.Errorf("got %+v", m)
	}
}
