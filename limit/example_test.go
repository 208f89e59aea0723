package limit_test

import (
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A request under two limits is charged to both or to none.
func ExampleDecide() {
	perSecond := limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 2, Window: time.Second})
	perDay := limit.MustNew(limit.Spec{Algorithm: limit.SlidingWindow, Max: 1000, Window: 24 * time.Hour})
	group := limit.MakeGroup(limit.AppendPart(limit.AppendPart(nil, "user"), "alice"))
	req := limit.Request{Ops: []limit.Op{
		{Key: limit.Key{Group: group, Limit: "second"}, Limit: perSecond, Cost: 1},
		{Key: limit.Key{Group: group, Limit: "day"}, Limit: perDay, Cost: 1},
	}}

	states := make([]limit.State, len(req.Ops)) // two unused keys
	now := limit.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var v limit.Verdict
	for range 3 {
		limit.Decide(states, &req, now, &v, nil)
		fmt.Println(v.Admitted, v.Outcomes[0].Remaining, v.Outcomes[0].Retry, v.Outcomes[1].Remaining)
	}
	limit.Decide(states, &req, now.Add(v.Outcomes[0].Retry), &v, nil)
	fmt.Println(v.Admitted, v.Outcomes[0].Remaining, v.Outcomes[0].Retry, v.Outcomes[1].Remaining)
	// Output:
	// true 1 0s 999
	// true 0 500ms 998
	// false 0 500ms 998
	// true 0 500ms 997
}

func ExampleNew() {
	l, err := limit.New(limit.Spec{Algorithm: limit.TokenBucket, Max: 7, Window: 3 * time.Second, Burst: 10})
	fmt.Println(l, err)
	_, err = limit.New(limit.Spec{Algorithm: limit.FixedWindow, Max: -1, Window: time.Second})
	fmt.Println(err)
	// Output:
	// token_bucket 7/3s burst 10 <nil>
	// limit -1 is outside 0 to 1099511627776
}
