package leases

import (
	"testing"

	"github.com/headgate-rls/headgate/backends"
)

// TestFailedReleaseIsRetriedUntilTheStoreIsBack: a release that the store fails
// is repeated, and the lease ends when the store is back.
func TestFailedReleaseIsRetriedUntilTheStoreIsBack(t *testing.T) {
	f := newFleet(t, 1)
	a := f.members[0]
	_, g := a.acquire(envoy1, "x")
	left := 2
	f.store.before = func() error {
		if left--; left >= 0 {
			return backends.ErrUnavailable
		}
		return nil
	}
	a.Abandon(&g)
	f.eventually("the lease is released", func() bool { return a.counts.count("d/tenant abandoned") == 1 })
	f.want(0, "after the retries")
	if n := a.counts.count("d/tenant lost"); n != 0 {
		t.Errorf("%d leases are counted as lost", n)
	}
}
