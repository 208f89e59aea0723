package ratelimit

import (
	"fmt"
	"math"
	"testing"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

const wideRules = `
domain: d
descriptors:
- {key: money, limits: [{name: month, algorithm: fixed_window, limit: 10000000000, window: 30d}]}
- {key: bucket, overflow: debt, limits: [{algorithm: token_bucket, rate: 1000000/s, burst: 5000000000}]}
- {key: most, limits: [{algorithm: fixed_window, limit: 4294967295, window: 1h}]}
- {key: more, limits: [{algorithm: fixed_window, limit: 4294967296, window: 1h}]}
- key: report
  reserve: {amount: 1000000000, match: oldest}
  limits: [{algorithm: fixed_window, limit: 10000000000, window: 1h}]
`

// wideHarness sends all headers about limits.
func wideHarness(t *testing.T) *harness {
	return setup(t, wideRules, func(c *Config) {
		c.Headers = Headers{Limit: "l", Remaining: "r", IETF: true}
	})
}

// figures returns what a response says of its i-th descriptor: what is left of which limit, as its status has it and
// exactly.
func figures(t *testing.T, r *Response, i int) string {
	t.Helper()
	m := decoded(t, r)
	st := m.Statuses[i]
	text := fmt.Sprintf("%d of %d", st.LimitRemaining, st.CurrentLimit.GetRequestsPerUnit())
	exact := m.GetDynamicMetadata().GetFields()["exact"].GetStructValue().GetFields()
	if of := exact[fmt.Sprint(i)].GetStructValue().GetFields(); of != nil {
		text += fmt.Sprintf(", exactly %.0f of %.0f", of["remaining"].GetNumberValue(), of["limit"].GetNumberValue())
	}
	return text
}

// TestWideLimits: statuses scale a limit above 2^32-1 and what is left of it by the same factor, and leave others as
// they are. The exact figures are in metadata, under the number of the descriptor.
func TestWideLimits(t *testing.T) {
	h := wideHarness(t)
	for _, c := range []struct {
		key  string
		take uint64
		want string
	}{
		{"money", 6_000_000_000, "1717986918 of 4294967295, exactly 4000000000 of 10000000000"}, // 60 % are used
		{"money", 3_999_999_998, "0 of 4294967295, exactly 2 of 10000000000"},
		{"money", 3, "0 of 4294967295, exactly 2 of 10000000000"}, // refused
		{"bucket", 2_500_000_000, "2147483647 of 4294967295, exactly 2500000000 of 5000000000"},
		{"most", 1, "4294967294 of 4294967295"},
		{"more", 1, "4294967294 of 4294967295, exactly 4294967295 of 4294967296"},
		{"report", 0, "3865470565 of 4294967295, exactly 9000000000 of 10000000000"},
		{"report", 5_000_000_000, "2147483647 of 4294967295, exactly 5000000000 of 10000000000"},
	} {
		if got := figures(t, h.ask(desc(c.key+"=a").withHits(c.take)), 0); got != c.want {
			t.Errorf("%s, %d taken: %s left, want %s", c.key, c.take, got, c.want)
		}
	}
	r := h.ask(desc("most=b"), desc("money=b"), desc("none=b"), desc("more=b"))
	for i, want := range map[int]string{0: "4294967294 of 4294967295",
		1: "4294967294 of 4294967295, exactly 9999999999 of 10000000000", 2: "0 of 0",
		3: "4294967294 of 4294967295, exactly 4294967295 of 4294967296"} {
		if got := figures(t, r, i); got != want {
			t.Errorf("descriptor %d: %s, want %s", i, got, want)
		}
	}
}

// TestHeadersOfWideLimits: text has room for the exact figures, and they say which limit is the closest to refuse.
func TestHeadersOfWideLimits(t *testing.T) {
	h := wideHarness(t)
	h.ask(desc("money=a").withHits(6_000_000_000))
	got := fmt.Sprint(h.ask(desc("money=a")).Headers)
	if want := `[{l 10000000000} {r 3999999999} {RateLimit-Policy "month";q=10000000000;w=2592000} ` +
		`{RateLimit "month";r=3999999999;t=518400}]`; got != want {
		t.Errorf("headers %s, want %s", got, want)
	}
	h.ask(desc("most=a").withHits(1_294_967_295)) // 3,000,000,000 are left
	for _, list := range [][]Descriptor{{desc("money=a"), desc("most=a")}, {desc("most=a"), desc("money=a")}} {
		if got := h.ask(list...).Headers[0].Value; got != "4294967295" {
			t.Errorf("the headers are about the limit of %s", got)
		}
	}
}

// TestWideLimitsOfPolicies: they are scaled, too.
func TestWideLimitsOfPolicies(t *testing.T) {
	h := setup(t, policyRules, withPolicies)
	h.put(map[string]policies.Figures{"b:1|a:1": per(limit.FixedWindow, 10_000_000_000, 60)})
	got := figures(t, h.ask(desc("a=1,b=1").withHits(6_000_000_000)), 0)
	if want := "1717986918 of 4294967295, exactly 4000000000 of 10000000000"; got != want {
		t.Errorf("%s left, want %s", got, want)
	}
}

// TestWideLimitsInProcess: callers in this process get the exact figures.
func TestWideLimitsInProcess(t *testing.T) {
	h := wideHarness(t)
	h.ask(desc("money=a").withHits(6_000_000_000))
	if in := h.askAs(Request{InProcess: true}, desc("money=a")).Inside; in.Remaining != 3_999_999_999 {
		t.Errorf("%d are left", in.Remaining)
	}
}

// TestScaled: no figure overflows, and what is left is never more than it is.
func TestScaled(t *testing.T) {
	for _, wide := range []int64{1 << 32, 1<<32 + 1, 10_000_000_000, limit.MaxUnits - 1, limit.MaxUnits} {
		before := uint32(0)
		for part := range int64(1001) {
			n := wide/1000*part + wide%1000*part/1000
			got := scaled(n, wide)
			if exact := float64(n) / float64(wide) * math.MaxUint32; math.Abs(exact-float64(got)) > 1 || got < before {
				t.Fatalf("%d of %d becomes %d, after %d", n, wide, got, before)
			}
			before = got
		}
		if before != math.MaxUint32 {
			t.Errorf("%d of %d becomes %d", wide, wide, before)
		}
	}
	if got := scaled(math.MaxInt64, 1<<32); got != math.MaxUint32 {
		t.Errorf("more than all becomes %d", got)
	}
	few := limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 1, Window: limit.MinWindow})
	none := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 0, Window: limit.MaxWindow})
	if got := fmt.Sprint(LimitOnWire(few), LimitOnWire(none)); got != "1 0" {
		t.Errorf("limits of 1 and 0 become %s", got)
	}
}
