package redis

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestEndOfAnOwnerIsBounded: ending the leases of an owner takes work in
// proportion to the leases that there are, in many calls. Work is time as Redis
// counts it, compared with that of acquiring the same leases, so that a busy
// machine does not matter.
func TestEndOfAnOwnerIsBounded(t *testing.T) {
	total := 60_000
	if n, err := strconv.Atoi(os.Getenv("HEADGATE_TEST_LEASES")); err == nil {
		total = n
	}
	s := testenv.StartRedis(t)
	b, c, ctx := open(t, s.URL()), s.Client(), context.Background()
	l := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: time.Hour})
	k := limit.Key{Group: "g", Limit: "l"}
	const slice = 1000
	out := make([]limit.Verdict, slice)
	for from := 0; from < total; from += slice {
		var reqs []limit.Request
		for i := range slice {
			op := limit.Op{Key: k, Limit: l, Cost: 1, Holder: fmt.Sprintf("%d-%d", i%2, from+i)}
			reqs = append(reqs, limit.Request{Ops: []limit.Op{op}})
		}
		b.Take(ctx, reqs, out)
		if out[slice-1].Err != nil || !out[slice-1].Admitted {
			t.Fatal(out[slice-1])
		}
	}
	acquired := scriptTime(t, c)
	op := limit.Op{Key: k, Limit: l, Cost: -1, Holder: "1-", Ending: limit.EndOwner}
	var longest time.Duration
	rounds := 0
	for more := true; more; rounds++ {
		before, v := scriptTime(t, c), out[:1]
		b.Take(ctx, []limit.Request{{Ops: []limit.Op{op}}}, v)
		if v[0].Err != nil {
			t.Fatal(v[0].Err)
		}
		longest = max(longest, scriptTime(t, c)-before)
		op, more = op.Rest(&v[0])
	}
	ended := scriptTime(t, c) - acquired
	b.Take(ctx, []limit.Request{{Ops: []limit.Op{{Key: k, Limit: l}}}}, out[:1])
	if n := out[0].Outcomes[0].InFlight; n != int64(total/2) {
		t.Errorf("%d leases are left, want %d of the other owner", n, total/2)
	}
	t.Logf("%d leases: acquired in %v of Redis' time, half of them ended in %v by %d calls, the longest %v", total,
		acquired, ended, rounds, longest)
	if ended > acquired/2 {
		t.Errorf("half of the leases were ended in %v, all were acquired in %v", ended, acquired)
	}
	if least := total / 2 / limit.OwnerSlice; rounds < least {
		t.Errorf("%d calls, want at least %d, none of which keeps Redis from other work", rounds, least)
	}
}
