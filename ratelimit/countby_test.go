package ratelimit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
)

const perClient = `
domain: d
resources:
- method: POST
  path: /login
  by: [remote_address]
  except: {network: 10.0.0.0/8}
  max_keys: 1000
  rate_limit: {unit: minute, requests_per_unit: 2}
- path: /chat
  by: [header.x-user]
  reserve: {amount: 4, on_lost: free}
  rate_limit: {unit: hour, requests_per_unit: 10}
`

func loginOf(address string) Descriptor {
	return desc("method=POST,path=/login,remote_address=" + address)
}

// TestManyClientsOfAResource: a million clients have as many counters as max_keys says and one more, and those that
// have counters of their own keep them.
func TestManyClientsOfAResource(t *testing.T) {
	h := setup(t, perClient)
	h.want(h.ask(loginOf("192.0.2.1")), "OK: ok/1")
	for i := range 1_000_000 {
		h.ask(loginOf(fmt.Sprintf("11.%d.%d.%d", i>>16, i>>8&255, i&255)))
	}
	if n := len(h.be.states); n != 1001 {
		t.Errorf("the store has %d counters, want 1001", n)
	}
	h.want(h.ask(loginOf("192.0.2.1")), "OK: ok/0")
	h.want(h.ask(loginOf("192.0.2.2")), "OVER: over/0")
	h.want(h.ask(loginOf("10.0.0.1")), "OK: ok")
	if got := fmt.Sprint(h.figures("headgate_rule_keys")); got != "map[d/POST:/login:1000]" {
		t.Error(got)
	}
	domain, entries, matches, ok := h.Rules().Counted(h.rules.Load().views[0].keys.shared)
	if name := descriptors.Name(domain, entries); !ok || !matches ||
		name != "d|method=POST|path=/login|remote_address=(others)" {
		t.Errorf("the shared counter is called %q (%v, %v)", name, matches, ok)
	}
}

// TestRequestsWithoutTheAddressAreLogged, once a minute, and count together.
func TestRequestsWithoutTheAddressAreLogged(t *testing.T) {
	h := setup(t, perClient)
	h.want(h.ask(loginOf("192.0.2.1")), "OK: ok/1")
	if h.log.String() != "" && strings.Contains(h.log.String(), "missing=") {
		t.Errorf("with the address: %s", h.log)
	}
	h.want(h.ask(desc("method=POST,path=/login")), "OK: ok/1")
	h.want(h.ask(desc("method=POST,path=/login,x=y")), "OK: ok/0")
	h.want(h.ask(loginOf("")), "OVER: over/0")
	if n := strings.Count(h.log.String(), "rule=POST:/login missing=remote_address"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, h.log)
	}
}

// TestResourceByValueIsExplained: what counters are called leads to their rule.
func TestResourceByValueIsExplained(t *testing.T) {
	h := setup(t, perClient)
	h.ask(loginOf("192.0.2.1"))
	x, err := h.Explain(t.Context(), "d", loginOf("192.0.2.1").Entries)
	if err != nil || x.Rule == nil || x.Rule.Path != "POST:/login" || len(x.Limits) != 1 || x.Limits[0].Remaining != 1 {
		t.Errorf("the explanation is %+v, %v", x, err)
	}
}
