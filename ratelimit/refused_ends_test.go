package ratelimit

import (
	"testing"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// TestAnonymousEndIsRefusedByLeaseRule: where requests end by their lease, a
// negative hit without one gives nothing back, neither that limit's place nor
// what other limits of the request would get.
func TestAnonymousEndIsRefusedByLeaseRule(t *testing.T) {
	h := setup(t, inFlightRules)
	h.acquire("tenant=x")
	h.acquire("tenant=x")
	h.ask(desc("anon=1"))
	const why = `error: descriptors[0]: rule d/tenant releases requests by lease (release: lease), ` +
		`not by a negative hits_addend`
	for _, n := range []uint64{1, 2, 1 << 40} {
		h.want(h.ask(desc("tenant=x").refund(n)), why)
		h.want(h.ask(desc("tenant=x").refund(n), desc("anon=1").refund(1)), why)
	}
	h.wantInFlight(3)
	h.want(h.ask(desc("tenant=x")), "OVER: over/0")
	h.want(h.ask(desc("tenant=x").refund(0)), "OVER: over/0") // a question
	h.want(h.ask(desc("anon=1").refund(1)), "OK: ok/2")
}

// TestLeaseWithoutHolderIsRefused: a token that names nobody ends nobody's
// lease, even if it is signed with our secret.
func TestLeaseWithoutHolderIsRefused(t *testing.T) {
	signer := leases.NewSigner([]byte("known"))
	h := setup(t, inFlightRules, func(c *Config) { c.Leases = signer })
	var mine leases.Lease
	if err := signer.Parse(h.acquire("tenant=x"), &mine); err != nil {
		t.Fatal(err)
	}
	anonymous := leases.Lease{Domain: "d", Until: mine.Until, Held: []leases.Held{
		{Key: limit.Key{Group: mine.Held[0].Key.Group, Limit: mine.Held[0].Key.Limit}, TTL: mine.Held[0].TTL}}}
	token, err := signer.Sign(&anonymous)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []leases.Action{leases.Release, leases.End, leases.Renew} {
		d := release(token)
		d.Entries[0].Value = string(op)
		h.want(h.ask(d), "error: descriptors[0]: the lease token has no holder")
	}
	h.wantInFlight(1)
}
