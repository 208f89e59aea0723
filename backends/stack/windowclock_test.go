package stack

import (
	"testing"
	"time"

	_ "github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// With layout=envoy windows go by the clocks of the replicas. One whose clock was ahead for a moment, and is right
// again, counts in the windows of the others again.
func TestAClockThatIsRightAgainCountsWithTheOthers(t *testing.T) {
	url := testenv.StartRedis(t).URL() + "?layout=envoy"
	var replicas [2]*Stack
	for i := range replicas {
		s, err := New(t.Context(), url, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		replicas[i] = s
	}
	c := replicas[1].clock
	wall, elapsed := time.Now().UnixMicro(), time.Since(c.start).Microseconds()
	c.at(wall+time.Hour.Microseconds(), elapsed) // as it reads a wall clock that is an hour ahead
	c.at(wall+1000, elapsed+1000)                // and that is right again
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Hour})
	admitted := 0
	for range 20 {
		for _, s := range replicas {
			out := make([]limit.Verdict, 1)
			s.Backend.Take(t.Context(), []limit.Request{{At: s.Now(), Ops: []limit.Op{{
				Key: limit.Key{Group: "g", Limit: "f"}, Limit: l, Cost: 1, Each: true}}}}, out)
			if out[0].Err != nil {
				t.Fatal(out[0].Err)
			}
			if out[0].Admitted {
				admitted++
			}
		}
	}
	if admitted != 10 {
		t.Errorf("%d requests were admitted by a limit of 10; the clocks are %v apart", admitted,
			replicas[1].Now().Sub(replicas[0].Now()))
	}
}
