package units

import (
	"testing"
	"time"
)

func TestDurationsReadDaysAndWeeks(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want time.Duration
	}{
		{"30s", 30 * time.Second}, {"1d12h", 36 * time.Hour}, {"1w", 168 * time.Hour}, {"1.5d", 36 * time.Hour},
		{"1h30m", 90 * time.Minute}, {"250ms", 250 * time.Millisecond}, {"1w1d1h", 193 * time.Hour},
		{"5µs", 5 * time.Microsecond},
		{"", -1}, {"5", -1}, {"s", -1}, {"-5s", -1}, {"+5s", -1}, {"5 s", -1}, {"5x", -1}, {"1..5s", -1}, {"1d-5h", -1},
		{"100000000w", -1}, {"9223372036s9223372036s", -1}, {"5M", -1},
	} {
		got, err := ParseDuration(tc.in)
		if err != nil {
			got = -1
		}
		if got != tc.want {
			t.Errorf("%q: got %v, want %v (%v)", tc.in, got, tc.want, err)
		}
	}
}

func TestRatesNeedACountAndAUnit(t *testing.T) {
	for _, tc := range []struct {
		in     string
		n      int64
		window time.Duration
	}{
		{"100/s", 100, time.Second}, {"5/min", 5, time.Minute}, {"5/minute", 5, time.Minute}, {"7/h", 7, time.Hour},
		{"7/hour", 7, time.Hour}, {"1/day", 1, 24 * time.Hour}, {"10/30s", 10, 30 * time.Second},
		{" 3 / 1d ", 3, 24 * time.Hour},
		{"0/second", 0, time.Second}, {"1/week", 1, 168 * time.Hour}, {"1/month", 1, 720 * time.Hour},
		{"5/m", -1, 0}, {"5", -1, 0}, {"/s", -1, 0}, {"5/", -1, 0}, {"-5/s", -1, 0}, {"1.5/s", -1, 0}, {"5/5", -1, 0},
		{"1/2/s", -1, 0},
		{"9223372036854775808/s", -1, 0}, {"x/s", -1, 0},
	} {
		n, window, err := ParseRate(tc.in)
		if err != nil {
			n, window = -1, 0
		}
		if n != tc.n || window != tc.window {
			t.Errorf("%q: got %d/%v (%v)", tc.in, n, window, err)
		}
	}
}
