package policies

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// Figures are the numbers of a policy.
type Figures struct {
	Algorithm limit.Algorithm
	// Capacity is how many units pass per Window, or the burst of a token bucket.
	Capacity int64
	// Refill is how many units a token bucket gets back per second. Other algorithms do not
	// use it.
	Refill Amount
	// Window is in seconds. A token bucket does not use it.
	Window Amount
}

// types are the words for algorithms in tables, and the older ones of JSON. SLIDING_WINDOW is exact:
// it counts what was admitted one by one.
var types = map[limit.Algorithm]string{
	limit.TokenBucket:   "TOKEN_BUCKET",
	limit.SlidingLog:    "SLIDING_WINDOW",
	limit.SlidingWindow: "SLIDING_WINDOW_COUNTER",
	limit.FixedWindow:   "FIXED_WINDOW",
}

// TypeOf returns the word that tables have for an algorithm; "" for those that policies cannot have.
func TypeOf(a limit.Algorithm) string { return types[a] }

// Types returns all words of [TypeOf], in the order of the algorithms.
func Types() (all []string) {
	for _, a := range limit.Algorithms() {
		if t := types[a]; t != "" {
			all = append(all, t)
		}
	}
	return all
}

// ParseType returns the algorithm of a word that TypeOf gives.
func ParseType(text string) (limit.Algorithm, error) {
	for a, t := range types {
		if t == text {
			return a, nil
		}
	}
	return 0, fmt.Errorf("type %.40q is unknown; it must be %s", text, strings.Join(Types(), ", "))
}

// Spec returns the limit that the figures describe. They need not be valid.
func (f Figures) Spec() limit.Spec {
	if f.Algorithm != limit.TokenBucket {
		return limit.Spec{Algorithm: f.Algorithm, Max: f.Capacity, Window: time.Duration(f.Window) * time.Microsecond}
	}
	// Refill units in a million seconds, as the smallest whole numbers.
	units, seconds := int64(f.Refill), int64(One)
	for g := gcd(units, seconds); g > 1; g = gcd(units, seconds) {
		units, seconds = units/g, seconds/g
	}
	return limit.Spec{Algorithm: limit.TokenBucket, Max: units, Window: time.Duration(seconds) * time.Second,
		Burst: f.Capacity}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Limit returns the limit that the figures describe. The error says which figure is wrong, in the
// words of rules.
func (f Figures) Limit() (*limit.Limit, error) { return f.check(&ruleNames) }
