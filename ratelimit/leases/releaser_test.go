package leases

import (
	"testing"
	"time"

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

// TestFailedReleasesHoldNoOthersUp: a tenant whose counter is on a server that does not answer has many releases to be
// retried. Those of others do not wait for them.
func TestFailedReleasesHoldNoOthersUp(t *testing.T) {
	f := newFleet(t, 1)
	f.setMax(10 * batchSize)
	a := f.members[0]
	grants := make([]Grant, 3*batchSize)
	for i := range grants {
		_, grants[i] = a.acquire(envoy1, "frozen")
	}
	_, other := a.acquire(envoy2, "other")
	f.store.spoil("frozen", backends.ErrUnavailable)
	for i := range grants {
		a.Abandon(&grants[i])
	}
	time.Sleep(2 * minPause)
	began := time.Now()
	a.Abandon(&other)
	f.eventually("the other lease is released", func() bool { return a.counts.count("d/tenant abandoned") == 1 })
	if d := time.Since(began); d > time.Second+maxPause {
		t.Errorf("the other lease was released after %v", d)
	}
	f.store.spoil("frozen", nil)
	f.eventually("all leases are released", func() bool { return a.counts.count("d/tenant abandoned") == len(grants)+1 })
}

// TestReleaseOfCorruptCounterIsGivenUp: nothing can be done about it, and it is counted.
func TestReleaseOfCorruptCounterIsGivenUp(t *testing.T) {
	f := newFleet(t, 1)
	a := f.members[0]
	_, g := a.acquire(envoy1, "foreign")
	f.store.spoil("foreign", backends.ErrCorrupt)
	a.Abandon(&g)
	f.eventually("the lease is lost", func() bool { return a.counts.count("d/tenant lost") == 1 })
}
