package ratelimit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/test/random"
)

// A request that keeps what rules match for it is answered as one that does not, also when rules change and come back.
func TestRecallChangesNoAnswer(t *testing.T) {
	rules := func(n int) string {
		list := []string{"- {key: c, rate_limit: {unlimited: true}}\n",
			fmt.Sprintf("- {key: a, rate_limit: {unit: hour, requests_per_unit: %d}}\n", 2*n),
			fmt.Sprintf("- {key: b, value: x, rate_limit: {unit: hour, requests_per_unit: %d}}\n", n)}
		return "domain: d\ndescriptors:\n" + strings.Join(list[n%3:], "") // some rules are missing, and have other numbers
	}
	one, other := setup(t, rules(30)), setup(t, rules(30))
	var sets []*descriptors.Set
	for _, n := range []int{18, 4, 30, 31} {
		sets = append(sets, setup(t, rules(n)).Rules())
	}
	list := [][]Descriptor{{desc("a=1")}, {desc("b=x"), desc("a=1")}, {desc("b=y")}, {desc("c=1"), desc("b=x")},
		{desc("a=2").withHits(3)}, {desc("headgate.op=estimate").withHits(1), desc("a=1")},
		{desc("=1")}, {desc("a=1"), desc("=")}}
	kept := make([]Request, len(list))
	for i := range kept {
		kept[i] = Request{Domain: "d", Descriptors: list[i], InProcess: true, Recall: new(Recall)}
	}
	rnd := random.Rand(t, 3)
	for range 2000 {
		if rnd.IntN(10) == 0 {
			set := sets[rnd.IntN(len(sets))]
			for _, h := range []*harness{one, other} {
				if err := h.SetRules(set); err != nil {
					t.Fatal(err)
				}
			}
		}
		i := rnd.IntN(len(list))
		want, got := new(Response), new(Response)
		one.Decide(context.Background(), []*Request{{Domain: "d", Descriptors: list[i], InProcess: true}}, []*Response{want})
		other.Decide(context.Background(), []*Request{&kept[i]}, []*Response{got})
		if fmt.Sprint(got.Err) != fmt.Sprint(want.Err) || got.OverLimit != want.OverLimit ||
			got.Err == nil && (got.Inside.Rule != want.Inside.Rule || got.Inside.Key != want.Inside.Key ||
				got.Inside.Remaining != want.Inside.Remaining) {
			t.Fatalf("%v: got %+v, want %+v", list[i], got, want)
		}
	}
}
