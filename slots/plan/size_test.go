package plan

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"PT4S": 4000, "PT0.5S": 500, "PT1.5S": 1500, "PT1M30S": 90_000, "PT7S": 7000,
		"P1D": 86_400_000, "P1DT0H": 86_400_000, "PT24H": 86_400_000, "P0DT2H": 7_200_000,
		"PT1440M": 86_400_000, "PT86400S": 86_400_000, "PT23H59M59.999S": 86_399_999,
		"PT0.1S": 100, "PT0.100000S": 100, "PT0,25S": 250, "pt4s": 4000, "PT007S": 7000,
		"PT0H0M4S": 4000, "PT90M": 5_400_000, "PT0000000000000000000004S": 4000,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	const form, fraction, bounds = "want days, hours", "want whole milliseconds", "want at least PT0.1S and at most PT24H"
	for text, want := range map[string]string{
		"": form, "P": form, "PT": form, "p1dt": form, "P1DT": form, "4": form, "4s": form, "T4S": form,
		"PT-4S": form, "-PT4S": form, "+PT4S": form, "PT+4S": form, "PT4": form, "PT.5S": form, "PT5.S": form,
		"P1Y": form, "P1M": form, "P1W": form, "P1H": form, "PT1D": form, "PT1S1M": form, "PT1M1M": form,
		"PT1.5M": form, "P1.5D": form, " PT4S": form, "PT4S ": form, "PT4S\n": form, "PT٤S": form, "PT 4S": form,
		"PT1e3S": form, "PT0x4S": form, "PT1_0S": form, "PT0.5.5S": form,
		"PT0.0005S": fraction, "PT0.1234S": fraction, "PT4.00000000001S": fraction,
		"PT0S": bounds, "P0D": bounds, "PT0.099S": bounds, "PT24H0.001S": bounds, "P1DT1S": bounds, "P2D": bounds,
		"PT9223372036854775807S": bounds, "P99999999999999999999999D": bounds, "PT9999999999999999999999H": bounds,
		"PT0000000000000000000004.0S": "window size has 27 characters, want at most 25",
		strings.Repeat("9", 1<<16):    "want at most 25",
	} {
		got, err := ParseSize(text)
		if err == nil || got != 0 {
			t.Errorf("%.40q: %d, %v", text, got, err)
		} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "window size ") ||
			len(err.Error()) > 300 {
			t.Errorf("%.40q: %v, want it to say %q", text, err, want)
		}
	}
}

// TestFormatSize: figures of java.time.Duration.toString.
func TestFormatSize(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "PT0S", 1: "PT0.001S", 10: "PT0.01S", 100: "PT0.1S", 500: "PT0.5S", 4000: "PT4S", 59_999: "PT59.999S",
		60_000: "PT1M", 90_000: "PT1M30S", 3_600_000: "PT1H", 3_600_500: "PT1H0.5S", 3_661_250: "PT1H1M1.25S",
		86_400_000: "PT24H", 90_061_001: "PT25H1M1.001S",
		-1: "PT-0.001S", -1500: "PT-1.5S", -90_500: "PT-1M-30.5S", -86_400_000: "PT-24H",
		math.MinInt64: "PT-2562047788015H-12M-55.808S", math.MaxInt64: "PT2562047788015H12M55.807S",
	} {
		if got := FormatSize(ms); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
}

func TestSizeRoundTrip(t *testing.T) {
	check := func(ms int64) {
		text := FormatSize(ms)
		if got, err := ParseSize(text); err != nil || got != ms || len(text) > maxSizeText {
			t.Fatalf("%d as %s: %d, %v", ms, text, got, err)
		}
	}
	check(MinSizeMs)
	check(MaxSizeMs)
	r := seeded(t)
	for range 50_000 {
		check(randomSize(r))
	}
}

// readWithTime reads an accepted size by other means: the time package reads
// what is behind the T.
func readWithTime(text string) (int64, error) {
	date, clock, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(text), ",", "."), "t")
	var ms int64
	if days := strings.Trim(date, "pd"); days != "" {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil {
			return 0, err
		}
		ms = n * 24 * 3600 * 1000
	}
	if clock == "" {
		return ms, nil
	}
	d, err := time.ParseDuration(clock)
	return ms + d.Milliseconds(), err
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"PT4S", "PT0.5S", "PT1M30S", "P1D", "P1DT0H0.000S", "pt0,1s", "PT", "P1W", "PT-4S",
		"PT86400.000S", "P99999999999999999999999D"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ms, err := ParseSize(text)
		if err != nil {
			if ms != 0 {
				t.Fatalf("%q: %d with %v", text, ms, err)
			}
			return
		}
		if ms < MinSizeMs || ms > MaxSizeMs || len(text) > maxSizeText {
			t.Fatalf("%q: %d", text, ms)
		}
		if other, err := readWithTime(text); err != nil || other != ms {
			t.Fatalf("%q: %d, the time package says %d, %v", text, ms, other, err)
		}
		if again, err := ParseSize(FormatSize(ms)); err != nil || again != ms {
			t.Fatalf("%q: %s gives %d, %v", text, FormatSize(ms), again, err)
		}
	})
}

// seeded returns a source that is the same in every run of a test.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	var seed uint64
	for _, c := range t.Name() {
		seed = seed*131 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, 1))
}

// randomSize is any size, small ones as often as large ones.
func randomSize(r *rand.Rand) int64 {
	switch r.IntN(5) {
	case 0:
		return MinSizeMs + r.Int64N(10_000)
	case 1:
		return []int64{MinSizeMs, 500, 1500, 4000, 7000, 3_600_000, MaxSizeMs}[r.IntN(7)]
	}
	return MinSizeMs + r.Int64N(MaxSizeMs-MinSizeMs+1)
}
