package policies

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

func TestAmountsReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Amount{"0": 0, "10": 10 * One, "0.25": 250_000, "0.000001": 1,
		"60.000000": 60 * One, "1.5000000": 1_500_000, "007": 7 * One} {
		got, err := ParseAmount(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if again, err := ParseAmount(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q, which is %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", "0.0000001", "1,5", "NaN",
		"99999999999999999999", "1000000001", "\"1\"", "1.2.3", "１"} {
		if got, err := ParseAmount(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestFiguresBecomeLimits(t *testing.T) {
	for _, c := range []struct {
		f    Figures
		want string
	}{
		{Figures{limit.TokenBucket, 100, 10 * One, 60 * One}, "token_bucket 10/1s burst 100"},
		{Figures{limit.TokenBucket, 5, One / 4, 0}, "token_bucket 1/4s burst 5"},
		{Figures{limit.TokenBucket, 5, 1_500_000, 0}, "token_bucket 3/2s burst 5"},
		{Figures{limit.SlidingLog, 2, 0, 60 * One}, "sliding_log 2/1m"},
		{Figures{limit.FixedWindow, 0, 0, One / 1000}, "fixed_window 0/1ms"},
	} {
		l, err := c.f.Limit()
		if err != nil || l.String() != c.want {
			t.Errorf("%v: %v, %v; want %s", c.f, l, err, c.want)
		}
	}
	longest := Amount(limit.MaxWindow / time.Microsecond)
	for _, c := range []struct {
		f    Figures
		want string
	}{
		{Figures{}, "algorithm"},
		{Figures{limit.Concurrency, 1, 0, One}, "algorithm concurrency"},
		{Figures{limit.FixedWindow, -1, 0, One}, "limit -1"},
		{Figures{limit.FixedWindow, 1 << 41, 0, One}, "limit"},
		{Figures{limit.SlidingWindow, 1 << 33, 0, One}, "limit"},
		{Figures{limit.FixedWindow, 1, 0, 0}, "window is missing"},
		{Figures{limit.FixedWindow, 1, 0, -1}, "window"},
		{Figures{limit.FixedWindow, 1, 0, longest + 1}, "window"},
		{Figures{limit.TokenBucket, 0, One, 0}, "burst 0"},
		{Figures{limit.TokenBucket, 1, 0, One}, "rate is missing"},
		{Figures{limit.TokenBucket, 1, -One, 0}, "rate"},
		{Figures{limit.TokenBucket, 1, maxAmount * One, 0}, "rate"},
	} {
		if l, err := c.f.Limit(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, %v; want %q", c.f, l, err, c.want)
		}
	}
}

func TestTypesNameAlgorithms(t *testing.T) {
	for _, a := range limit.Algorithms() {
		if got, err := ParseType(TypeOf(a)); err != nil || got != a {
			t.Errorf("%v is %q, which is %v, %v", a, TypeOf(a), got, err)
		}
	}
	for _, text := range []string{"", "token_bucket", "CONCURRENCY", "TOKEN BUCKET"} {
		if a, err := ParseType(text); err == nil {
			t.Errorf("%q is %v", text, a)
		}
	}
}
