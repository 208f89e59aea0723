package units

import (
	"math"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// TestNumbersAreEnvoys: each unit has the number that Envoy's API gives its name,
// in requests and in responses, and no unit of the API is missing.
func TestNumbersAreEnvoys(t *testing.T) {
	for _, api := range []map[string]int32{typev3.RateLimitUnit_value, rls.RateLimitResponse_RateLimit_Unit_value} {
		for name, number := range api {
			u, ok := Named(name)
			if !ok && name != "UNKNOWN" || ok && u.Number != number {
				t.Errorf("%s is %d: %+v, %v", name, number, u, ok)
			}
			if byNumber, found := Numbered(number); found != ok || byNumber != u {
				t.Errorf("%d is %+v, want %+v", number, byNumber, u)
			}
		}
	}
}

// TestWindowIsAMultipleOfTheLongestUnit: Of finds the unit that says a window in
// the smallest number.
func TestWindowIsAMultipleOfTheLongestUnit(t *testing.T) {
	const day = 24 * time.Hour
	for window, want := range map[time.Duration]struct {
		name string
		n    int64
	}{
		time.Second: {"second", 1}, 90 * time.Second: {"second", 90}, 120 * time.Second: {"minute", 2},
		7 * day: {"week", 1}, 14 * day: {"week", 2}, 30 * day: {"month", 1}, 60 * day: {"month", 2}, 365 * day: {"year", 1},
		36 * time.Hour:   {"hour", 36},
		time.Millisecond: {"", 0}, 1500 * time.Millisecond: {"", 0}, 0: {"", 0},
	} {
		if u, n := Of(window); u.Name != want.name || n != want.n {
			t.Errorf("%v is %d %s, want %d %s", window, n, u.Name, want.n, want.name)
		}
	}
	if got := strings.Join(Names(), " "); got != "second minute hour day week month year" {
		t.Errorf("names: %s", got)
	}
}

// TestSecondsAreRoundedUp: a caller that waits that many seconds has waited enough.
func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2,
		math.MaxInt64: math.MaxInt64/1_000_000_000 + 1} {
		if got := CeilSeconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}
