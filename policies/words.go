package policies

import (
	"cmp"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// Words are a limit in the words of rules, as answers have them.
type Words struct {
	Algorithm string `json:"algorithm,omitempty"` // "": a row of the table has an unknown type
	Limit     *int64 `json:"limit,omitempty"`
	Window    string `json:"window,omitempty"`
	Rate      string `json:"rate,omitempty"` // of a token bucket
	Burst     int64  `json:"burst,omitempty"`
}

// WordsOf returns the words of a limit.
func WordsOf(s limit.Spec) Words {
	switch {
	case s.Algorithm == 0:
		return Words{}
	case s.Algorithm == limit.Concurrency:
		return Words{Algorithm: s.Algorithm.String(), Limit: &s.Max}
	case s.Algorithm.Is(limit.Refilled):
		return Words{Algorithm: s.Algorithm.String(), Rate: rateText(s.Max, s.Window), Burst: cmp.Or(s.Burst, s.Max)}
	}
	return Words{Algorithm: s.Algorithm.String(), Limit: &s.Max, Window: units.Format(s.Window)}
}

func rateText(n int64, window time.Duration) string {
	if window == time.Second {
		return fmt.Sprintf("%d/s", n)
	}
	if window%time.Second == 0 && window > 24*time.Hour {
		return fmt.Sprintf("%d/%ds", n, int64(window.Seconds()))
	}
	return fmt.Sprintf("%d/%s", n, units.Format(window))
}

// Words returns the figures in the words of rules.
func (f Figures) Words() Words { return WordsOf(f.Spec()) }

// Text returns the figures for people, as TextOf does.
func (f Figures) Text() string { return TextOf(f.Spec()) }

// TextOf returns a limit for people: "20/1m" of a fixed window, "sliding_log 2/1m", "token_bucket 5/1s burst 9".
func TextOf(s limit.Spec) string {
	text := fmt.Sprintf("%d/%s", s.Max, units.Format(s.Window))
	switch {
	case s.Algorithm == 0:
		return "unknown"
	case s.Algorithm == limit.FixedWindow:
		return text
	case s.Algorithm.Is(limit.Refilled):
		return fmt.Sprintf("%v %s burst %d", s.Algorithm, text, cmp.Or(s.Burst, s.Max))
	}
	return fmt.Sprintf("%v %s", s.Algorithm, text)
}

// Same reports whether two policies say the same limit: figures that the algorithm does not use may
// differ.
func (f Figures) Same(other Figures) bool {
	if f.Algorithm.Is(limit.Refilled) {
		f.Window = other.Window
	} else {
		f.Refill = other.Refill
	}
	return f == other
}

// names are what a set of words calls the figures.
type names struct{ algorithm, limit, burst, rate, window string }

var (
	ruleNames  = names{"algorithm", "limit", "burst", "rate", "window"}
	olderNames = names{"type", "capacity", "capacity", "refillRate", "windowSeconds"}
)

// LimitInOlderWords is [Figures.Limit] whose error has the older words.
func (f Figures) LimitInOlderWords() (*limit.Limit, error) { return f.check(&olderNames) }

// check returns the limit that the figures describe. The error says which figure is wrong, by its
// name.
func (f Figures) check(as *names) (*limit.Limit, error) {
	bucket := f.Algorithm.Is(limit.Refilled)
	capacity := as.limit
	if bucket {
		capacity = as.burst
	}
	switch {
	case types[f.Algorithm] == "":
		return nil, wrong(as.algorithm, "%v is not one of a policy", f.Algorithm)
	case f.Capacity < 0:
		return nil, wrong(capacity, "%d is negative", f.Capacity)
	case f.Capacity > f.Algorithm.MaxUnits():
		return nil, wrong(capacity, "%d is more than %d", f.Capacity, f.Algorithm.MaxUnits())
	case f.Refill < 0:
		return nil, wrong(as.rate, "%v is negative", f.Refill)
	case f.Window < 0 || f.Window > Amount(limit.MaxWindow.Microseconds()):
		return nil, wrong(as.window, "is outside 0.001 seconds to 10 years")
	case bucket && f.Capacity == 0:
		return nil, wrong(capacity,
			"0 is less than 1, the least that a token bucket has; a window refuses everything with 0")
	case bucket && f.Refill == 0:
		return nil, missing(as.rate, "a token bucket gets back more than 0 units per second")
	case !bucket && f.Window == 0:
		return nil, missing(as.window, "%v has a window of at least 0.001 seconds", f.Algorithm)
	case !bucket && f.Window < Amount(limit.MinWindow.Microseconds()):
		return nil, wrong(as.window, "is less than 0.001 seconds")
	}
	return limit.New(f.Spec())
}

// A WordError says what is wrong with one word.
type WordError struct {
	Word, Problem string
	Missing       bool // the word is not there
}

func (e *WordError) Error() string { return e.Word + " " + e.Problem }

func wrong(word, format string, args ...any) error {
	return &WordError{Word: word, Problem: fmt.Sprintf(format, args...)}
}

func missing(word, format string, args ...any) error {
	return &WordError{Word: word, Problem: "is missing: " + fmt.Sprintf(format, args...), Missing: true}
}
