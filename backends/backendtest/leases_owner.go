package backendtest

import (
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// checkLeasesOfAnOwner: however many leases an owner has, an op that ends them
// looks at a bounded number, so that the store gets to do other work; and such
// ops, repeated as limit.Op.Rest says, end all of the owner's leases and no
// others, even if leases are renewed, granted and released meanwhile.
func checkLeasesOfAnOwner(e *env) {
	e.keepsLeases()
	const owners, lot = 3, 500 // leases of a lot expire in the same millisecond
	total := int64(4 * limit.OwnerSlice)
	if units := e.s.Caps.Algorithms[limit.Concurrency].MaxUnits; units < total+lot {
		e.Skipf("the backend keeps only %d leases", units)
	}
	e.open()
	l, k, now := e.inFlight(total+lot, time.Hour), e.key("", "owner", limit.Concurrency), e.start()
	holder := func(i int64) string { return strconv.FormatInt(i%owners, 10) + "-" + strconv.FormatInt(i, 10) }
	for from := int64(0); from < total; from += lot {
		var reqs []limit.Request
		for i := from; i < min(from+lot, total); i++ {
			reqs = append(reqs, acquire(holder(i)).request(now, k, l))
		}
		e.takeAll(reqs)
		now += e.up(1000)
	}
	mine := (total - 1 + owners - 1) / owners // those of owner 1: 1, 4, 7 ...
	req := leaseOp{-1, "1-", limit.EndOwner}.request(now, k, l)
	v := e.take(req)
	most := int64(limit.OwnerSlice+lot)/owners + 1
	if ended := total - v.Outcomes[0].InFlight; ended > most || ended == 0 {
		e.Fatalf("one op ended %d of %d leases, want some and at most %d", ended, mine, most)
	}
	e.lease(now, k, l, renew(holder(1+owners*(total/owners-1)))) // moves to the end
	e.lease(now, k, l, acquire("2-new"))
	e.lease(now, k, l, release(holder(0)))
	held, rounds := v.Outcomes[0].Held, 1
	for ; ; rounds++ {
		rest, more := req.Ops[0].Rest(&v)
		if !more {
			break
		}
		if int64(rounds) > total/limit.OwnerSlice+2 {
			e.Fatalf("after %d ops there is still a rest: %+v", rounds, v)
		}
		req = limit.Request{At: now, Ops: []limit.Op{rest}}
		v = e.take(req)
		held = held || v.Outcomes[0].Held
	}
	if n := e.lease(now, k, l, leaseOp{}).InFlight; n != total-mine || !held {
		e.Errorf("after %d ops %d leases are left, want %d of other owners; held %v", rounds, n, total-mine, held)
	}
	e.forget(k)
}
