package table

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
	"github.com/headgate-rls/headgate/policies"
)

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

func wrong(word, format string, args ...any) error {
	return &policies.WordError{Word: word, Problem: fmt.Sprintf(format, args...)}
}

func missing(word, format string, args ...any) error {
	return &policies.WordError{Word: word, Problem: "is missing: " + fmt.Sprintf(format, args...), Missing: true}
}

// Figures reads the words. An error about one of them is a [*WordError].
func (g *Given) Figures() (policies.Figures, error) {
	rules, older := g.Words()
	inRules, inOlder := there(rules), there(older)
	switch {
	case len(inOlder) == 0:
		return g.rules()
	case len(inRules) == 0:
		return g.older()
	}
	asRules, err := g.rules()
	asOlder := policies.Figures{}
	if err == nil {
		asOlder, err = g.older()
	}
	if w, ok := errors.AsType[*policies.WordError](err); ok && w.Missing {
		return policies.Figures{}, wrong(inRules[0],
			"is mixed with older words: %s with %s; send the words of one set, or all of both",
			strings.Join(inRules, ", "), strings.Join(inOlder, ", "))
	}
	if err != nil {
		return policies.Figures{}, err
	}
	return asOlder, g.agree(asRules, asOlder)
}

// agree reports what the two sets of words contradict each other about.
func (g *Given) agree(rules, older policies.Figures) error {
	var words, others []Word
	a, b := g.Words()
	switch {
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
func (g *Given) rules() (f policies.Figures, err error) {
	if g.Algorithm == "" {
		return f, missing("algorithm", "it must be %s", algorithmNames())
	}
	known := false
	if f.Algorithm, known = limit.ParseAlgorithm(g.Algorithm); !known || policies.TypeOf(f.Algorithm) == "" {
		hint := ""
		if a, err := policies.ParseType(g.Algorithm); err == nil {
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
		_, err = f.Limit()
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

func (g *Given) window(f *policies.Figures) (err error) {
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
	f.Window = policies.Amount(window.Microseconds())
	switch {
	case window < limit.MinWindow:
		return wrong("window", "%v is less than %v", window, limit.MinWindow)
	case window%time.Microsecond != 0:
		return wrong("window", "%v is finer than a microsecond", window)
	}
	return nil
}

func (g *Given) bucket(f *policies.Figures) error {
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
	f.Capacity = n
	if g.Burst != "" {
		f.Capacity, err = whole("burst", g.Burst)
	}
	return err
}

// maxRefill is the fastest rate, more than any limit has, in millionths of a unit per second.
const maxRefill = 1_000_000_000 * uint64(policies.One)

// refill returns the units per second of a rate. Policies keep millionths of them, and no rate is
// kept as another one.
func refill(n int64, window time.Duration) (policies.Amount, error) {
	ns := uint64(window)
	high, low := bits.Mul64(uint64(n), uint64(time.Second)*uint64(policies.One))
	if ns == 0 || high >= ns {
		return 0, errors.New("is too fast")
	}
	millionths, rest := bits.Div64(high, low, ns)
	if millionths > maxRefill {
		return 0, errors.New("is too fast")
	}
	if rest == 0 {
		return policies.Amount(millionths), nil
	}
	near := func(a uint64) string {
		s := policies.Figures{Algorithm: limit.TokenBucket, Refill: policies.Amount(a)}.Spec()
		return policies.WordsOf(s).Rate
	}
	next := near(millionths + 1)
	if millionths > 0 {
		next = near(millionths) + " and " + next
	}
	return 0, fmt.Errorf("is not a multiple of 0.000001 per second, which policies keep; next to it: %s", next)
}

// older reads the older words.
func (g *Given) older() (f policies.Figures, err error) {
	if g.Type == "" {
		return f, missing("type", "it must be %s", strings.Join(policies.Types(), ", "))
	}
	if f.Algorithm, err = policies.ParseType(g.Type); err != nil {
		return f, wrong("type", "%s", strings.TrimPrefix(err.Error(), "type "))
	}
	if g.Capacity == "" {
		return f, missing("capacity", "it is the units per window, or the burst of a token bucket")
	}
	if f.Capacity, err = whole("capacity", g.Capacity); err != nil {
		return f, err
	}
	if f.Refill, err = policies.ParseAmount(cmp.Or(g.RefillRate, "0")); err != nil {
		return f, wrong("refillRate", "%v", err)
	}
	if f.Window, err = policies.ParseAmount(cmp.Or(g.WindowSeconds, "0")); err != nil {
		return f, wrong("windowSeconds", "%v", err)
	}
	_, err = f.LimitInOlderWords()
	return f, err
}

func whole(word, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, wrong(word, "%.40q is not a whole number", text)
	}
	return n, nil
}
