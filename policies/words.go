package policies

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
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

// Text returns the figures for people: "sliding_log limit=2 window=1m".
func (f Figures) Text() string {
	w := f.Words()
	switch {
	case w.Algorithm == "":
		return "unknown"
	case w.Limit == nil:
		return fmt.Sprintf("%s rate=%s burst=%d", w.Algorithm, w.Rate, w.Burst)
	}
	return fmt.Sprintf("%s limit=%d window=%s", w.Algorithm, *w.Limit, w.Window)
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

// Given is what somebody says of a policy, each word as text; "" is one that is not there. The
// first words are those of rules. The others are older, and mean the same; a policy may be given
// in either words, or in both.
type Given struct {
	Algorithm, Limit, Window, Rate, Burst     string
	Type, Capacity, RefillRate, WindowSeconds string
}

// A Word is one word of a [Given].
type Word struct {
	Name string // in JSON and in files
	Text *string
}

// Words returns the words of rules and the older ones.
func (g *Given) Words() (rules, older []Word) {
	rules = []Word{
		{"algorithm", &g.Algorithm}, {"limit", &g.Limit}, {"window", &g.Window}, {"rate", &g.Rate}, {"burst", &g.Burst},
	}
	older = []Word{
		{"type", &g.Type}, {"capacity", &g.Capacity}, {"refillRate", &g.RefillRate}, {"windowSeconds", &g.WindowSeconds},
	}
	return rules, older
}

// there returns the names of the words that are there.
func there(words []Word) (names []string) {
	for _, w := range words {
		if *w.Text != "" {
			names = append(names, w.Name)
		}
	}
	return names
}

// A WordError says what is wrong with one word.
type WordError struct {
	Word, Problem string
	missing       bool
}

func (e *WordError) Error() string { return e.Word + " " + e.Problem }

func wrong(word, format string, args ...any) error {
	return &WordError{Word: word, Problem: fmt.Sprintf(format, args...)}
}

func missing(word, format string, args ...any) error {
	return &WordError{Word: word, Problem: "is missing: " + fmt.Sprintf(format, args...), missing: true}
}

// Figures reads the words. An error about one of them is a [*WordError].
func (g *Given) Figures() (Figures, error) {
	rules, older := g.Words()
	inRules, inOlder := there(rules), there(older)
	switch {
	case len(inOlder) == 0:
		return g.rules()
	case len(inRules) == 0:
		return g.older()
	}
	asRules, err := g.rules()
	asOlder := Figures{}
	if err == nil {
		asOlder, err = g.older()
	}
	var w *WordError
	if errors.As(err, &w) && w.missing {
		return Figures{}, wrong(inRules[0],
			"is mixed with older words: %s with %s; send the words of one set, or all of both",
			strings.Join(inRules, ", "), strings.Join(inOlder, ", "))
	}
	if err != nil {
		return Figures{}, err
	}
	return asOlder, g.agree(asRules, asOlder)
}

// agree reports what the two sets of words contradict each other about.
func (g *Given) agree(rules, older Figures) error {
	var words, others []Word
	switch a, b := g.Words(); {
	case rules.Same(older):
		return nil
	case rules.Algorithm != older.Algorithm:
		words, others = a[:1], b[:1]
	case rules.Capacity != older.Capacity:
		words, others = []Word{a[1], a[4], a[3]}, b[1:2] // of a rate without a burst
	case rules.Algorithm.Is(limit.Refilled):
		words, others = a[3:4], b[2:3]
	default:
		words, others = []Word{a[2], a[3]}, b[3:4]
	}
	for _, w := range words {
		if *w.Text != "" {
			other := others[0]
			return wrong(w.Name, "%.40s and %s %.40s contradict each other", *w.Text, other.Name, cmp.Or(*other.Text, "0"))
		}
	}
	return nil
}

// rules reads the words of rules.
func (g *Given) rules() (f Figures, err error) {
	if g.Algorithm == "" {
		return f, missing("algorithm", "it must be %s", algorithmNames())
	}
	known := false
	if f.Algorithm, known = limit.ParseAlgorithm(g.Algorithm); !known || types[f.Algorithm] == "" {
		hint := ""
		if a, err := ParseType(g.Algorithm); err == nil {
			hint = fmt.Sprintf("; the older type %s is the algorithm %v", g.Algorithm, a)
		}
		return f, wrong("algorithm", "%.40q is unknown; it must be %s%s", g.Algorithm, algorithmNames(), hint)
	}
	if f.Algorithm.Is(limit.Refilled) {
		err = g.bucket(&f)
	} else {
		err = g.window(&f)
	}
	if err == nil {
		_, err = f.check(&ruleNames)
	}
	return f, err
}

func algorithmNames() string {
	var names []string
	for _, a := range limit.Algorithms() {
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

func (g *Given) window(f *Figures) (err error) {
	var window time.Duration
	switch {
	case g.Burst != "":
		return wrong("burst", "is there, and %v has none; only token_bucket has one", f.Algorithm)
	case g.Rate != "" && (g.Limit != "" || g.Window != ""):
		return wrong("rate", "is there as well as limit or window; one of the two is enough")
	case g.Rate != "":
		if f.Capacity, window, err = units.ParseRate(g.Rate); err != nil {
			return wrong("rate", "%.40q: %v", g.Rate, err)
		}
	case g.Limit == "":
		return missing("limit", "%v needs limit and window (limit 100, window 1m), or a rate (100/min)", f.Algorithm)
	case g.Window == "":
		return missing("window", "%v needs one, such as 1m", f.Algorithm)
	default:
		if f.Capacity, err = whole("limit", g.Limit); err != nil {
			return err
		}
		if window, err = units.ParseDuration(g.Window); err != nil {
			return wrong("window", "%.40q: %v", g.Window, err)
		}
	}
	f.Window = Amount(window.Microseconds())
	switch {
	case window < limit.MinWindow:
		return wrong("window", "%v is less than %v", window, limit.MinWindow)
	case window%time.Microsecond != 0:
		return wrong("window", "%v is finer than a microsecond", window)
	}
	return nil
}

func (g *Given) bucket(f *Figures) error {
	for _, w := range []Word{{"limit", &g.Limit}, {"window", &g.Window}} {
		if *w.Text != "" {
			return wrong(w.Name, "is there, and token_bucket has none; it has a rate (100/s) and a burst")
		}
	}
	if g.Rate == "" {
		return missing("rate", "token_bucket needs one, such as 100/s")
	}
	n, window, err := units.ParseRate(g.Rate)
	if err != nil {
		return wrong("rate", "%.40q: %v", g.Rate, err)
	}
	if n == 0 {
		return wrong("rate", "%.40q gives nothing back to a token bucket", g.Rate)
	}
	if f.Refill, err = refill(n, window); err != nil {
		return wrong("rate", "%.40q %v", g.Rate, err)
	}
	if f.Capacity = n; g.Burst != "" {
		f.Capacity, err = whole("burst", g.Burst)
	}
	return err
}

// refill returns the units per second of a rate. Policies keep millionths of them, and no rate is
// kept as another one.
func refill(n int64, window time.Duration) (Amount, error) {
	ns := uint64(window)
	high, low := bits.Mul64(uint64(n), uint64(time.Second)*uint64(One))
	if ns == 0 || high >= ns {
		return 0, errors.New("is too fast")
	}
	millionths, rest := bits.Div64(high, low, ns)
	if millionths > maxAmount*uint64(One) {
		return 0, errors.New("is too fast")
	}
	if rest == 0 {
		return Amount(millionths), nil
	}
	near := func(a uint64) string {
		s := Figures{Algorithm: limit.TokenBucket, Refill: Amount(a)}.Spec()
		return rateText(s.Max, s.Window)
	}
	next := near(millionths + 1)
	if millionths > 0 {
		next = near(millionths) + " and " + next
	}
	return 0, fmt.Errorf("is not a multiple of 0.000001 per second, which policies keep; next to it: %s", next)
}

// older reads the older words.
func (g *Given) older() (f Figures, err error) {
	if g.Type == "" {
		return f, missing("type", "it must be %s", strings.Join(Types(), ", "))
	}
	if f.Algorithm, err = ParseType(g.Type); err != nil {
		return f, wrong("type", "%s", strings.TrimPrefix(err.Error(), "type "))
	}
	if g.Capacity == "" {
		return f, missing("capacity", "it is the units per window, or the burst of a token bucket")
	}
	if f.Capacity, err = whole("capacity", g.Capacity); err != nil {
		return f, err
	}
	if f.Refill, err = ParseAmount(cmp.Or(g.RefillRate, "0")); err != nil {
		return f, wrong("refillRate", "%v", err)
	}
	if f.Window, err = ParseAmount(cmp.Or(g.WindowSeconds, "0")); err != nil {
		return f, wrong("windowSeconds", "%v", err)
	}
	_, err = f.check(&olderNames)
	return f, err
}

func whole(word, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, wrong(word, "%.40q is not a whole number", text)
	}
	return n, nil
}

// names are what a set of words calls the figures.
type names struct{ algorithm, limit, burst, rate, window string }

var (
	ruleNames  = names{"algorithm", "limit", "burst", "rate", "window"}
	olderNames = names{"type", "capacity", "capacity", "refillRate", "windowSeconds"}
)

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
