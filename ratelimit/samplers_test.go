package ratelimit

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
)

// TestGarbageTokensHideNoOutage sends leases that nobody granted, of which each
// is worth a line in the log: a failing backend is logged all the same.
func TestGarbageTokensHideNoOutage(t *testing.T) {
	h := setup(t, inFlightRules)
	garbage := Descriptor{Entries: []descriptors.Entry{{Key: OpKey, Value: OpRelease},
		{Key: LeaseEntry, Value: "garbage"}}}
	h.be.err = errors.Join(backends.ErrUnavailable, backends.ErrNotApplied)
	for range 20 { // in whichever second
		h.ask(garbage)
		h.ask(desc("k=1"))
	}
	for _, want := range []string{"unknown lease token", "backend failed, answered by policy"} {
		if !strings.Contains(h.log.String(), want) {
			t.Errorf("%q is not logged:\n%s", want, h.log)
		}
	}
	if n := strings.Count(h.log.String(), "unknown lease token"); n > 5 {
		t.Errorf("%d lines of one kind", n)
	}
}
