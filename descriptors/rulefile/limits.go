package rulefile

import (
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// limitsOf reads a rule's rate_limit or limits. It reports whether their counters
// are called by the value of the last entry alone.
func (l *loader) limitsOf(f fields, t *twig, r *descriptors.Body) (byValue bool) {
	one, many := f.get("rate_limit"), f.get("limits")
	if one != nil && many != nil {
		l.errorf(many, t, "the rule has rate_limit and limits; write the former as an entry of limits")
		return false
	}
	if one != nil {
		l.rateLimit(one, t, r)
	}
	if many == nil {
		return false
	}
	if f := l.follow(many); f.Kind == yaml.SequenceNode && len(f.Content) == 0 {
		l.errorf(many, t, "limits is empty; leave it out to limit nothing")
	}
	counters := map[int]bool{}
	l.list(many, t, "limits", func(n *yaml.Node) {
		f, ok := l.fields(n, levelLimit, t)
		if !ok {
			return
		}
		counter := 0
		if c := f.get("counter"); c != nil {
			if counter, ok = l.word(c, t, "counter", "entries", "value"); !ok {
				return
			}
		}
		counters[counter] = true
		spec := l.limitSpec(n, f, t)
		spec.Shadow = l.boolean(f.get("shadow"), t, "shadow")
		spec.Reserve = l.reserve(f, t)
		spec.Broken = !l.Clean(func() {
			spec.Figures, spec.Share, spec.WarnAt = l.figures(n, f, t), l.share(f, t), l.warnAt(f, t)
		})
		r.Limits = append(r.Limits, spec)
	})
	if len(counters) > 1 {
		l.errorf(many, t, "the limits of one rule must all have the same counter")
	}
	return counters[1]
}

// limitSpec begins a limit with its name and what it replaces.
func (l *loader) limitSpec(n *yaml.Node, f fields, t *twig) descriptors.LimitSpec {
	spec := descriptors.LimitSpec{Place: l.place(n), Fields: written(f), Replaces: l.replaces(f.get("replaces"), t)}
	spec.Name, _ = l.text(f.get("name"), t, "name")
	return spec
}

// replaces reads the names that a limit replaces.
func (l *loader) replaces(n *yaml.Node, t *twig) (names []descriptors.Replaced) {
	if isNull(n) {
		return nil
	}
	l.list(n, t, "replaces", func(e *yaml.Node) {
		f, ok := l.fields(e, levelReplaces, t)
		if !ok {
			return
		}
		if name, ok := l.text(f.get("name"), t, "name"); ok {
			names = append(names, descriptors.Replaced{Name: name, Place: l.place(e)})
		}
	})
	return names
}

// rateLimit reads the reference's form of a limit.
func (l *loader) rateLimit(n *yaml.Node, t *twig, r *descriptors.Body) {
	if isNull(n) {
		l.errorf(n, t, "rate_limit is empty; leave it out to limit nothing")
		return
	}
	f, ok := l.fields(n, levelRateLimit, t)
	if !ok {
		return
	}
	spec := l.limitSpec(n, f, t)
	spec.Alone, spec.Unlimited = true, l.boolean(f.get("unlimited"), t, "unlimited")
	spec.Broken = !l.Clean(func() {
		if spec.Unlimited {
			l.unlimited(f, t)
			return
		}
		spec.Figures.Algorithm, spec.Figures.Window = limit.FixedWindow, l.unit(n, f, t)
		count := f.get("requests_per_unit")
		if isNull(count) {
			l.errorf(n, t, "rate_limit has no requests_per_unit; write 0 to refuse everything, or unlimited: true")
			return
		}
		spec.Figures.Max, _ = l.integer(count, t, "requests_per_unit", 0, math.MaxUint32)
		said := l.calendarOf(f, t, &spec.Figures)
		spec.AnyMonth = !said && f.get("unit_multiplier") == nil && spec.Figures.Window == units.Month
		spec.Share, spec.WarnAt = l.share(f, t), l.warnAt(f, t)
	})
	r.Limits = []descriptors.LimitSpec{spec}
}

// share reads local_share of a limit.
func (l *loader) share(f fields, t *twig) (share int64) {
	n := f.get("local_share")
	if n == nil {
		return 0
	}
	if named := descriptors.ShareNames[l.follow(n).Value]; named != 0 {
		return named
	}
	if share = l.positive(n, t, "local_share"); share < 0 { // Build would take it for a name
		l.errorf(n, t, "local_share %d is outside 2 to %d; want a number, auto or none", share, limit.MaxUnits)
		return 0
	}
	return share
}

// warnAt reads from which part of a limit on it is nearly used up, such as 80%.
func (l *loader) warnAt(f fields, t *twig) int64 {
	n := f.get("warn_at")
	if n == nil {
		return 0
	}
	text, ok := l.text(n, t, "warn_at")
	if !ok {
		return 0
	}
	digits, percent := strings.CutSuffix(text, "%")
	p, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !percent || p < 1 || p > 100 {
		l.errorf(n, t, "warn_at %q is no percentage from 1%% to 100%%, such as 80%%", spell.Short(text))
		return 0
	}
	return p
}

// unlimited reports what contradicts unlimited: true.
func (l *loader) unlimited(f fields, t *twig) {
	if n := f.get("unit"); !isNull(n) && n.Value != "" {
		l.errorf(n, t, "unlimited and unit contradict each other")
	}
	if n := f.get("requests_per_unit"); n != nil {
		l.warnf(n, t, "requests_per_unit has no effect beside unlimited")
	}
	for _, name := range []string{"unit_multiplier", "calendar", "time_zone", "local_share", "warn_at"} {
		if n := f.get(name); n != nil {
			l.errorf(n, t, "unlimited and %s contradict each other", name)
		}
	}
}

// unit returns the window that unit and unit_multiplier make.
func (l *loader) unit(parent *yaml.Node, f fields, t *twig) time.Duration {
	multiplier := int64(1)
	if n := f.get("unit_multiplier"); n != nil {
		var ok bool
		if multiplier, ok = l.integer(n, t, "unit_multiplier", 1, math.MaxUint32); !ok {
			return 0
		}
	}
	n := f.get("unit")
	if isNull(n) {
		l.errorf(parent, t, "rate_limit has no unit; it must be %s", spell.OneOf(units.Names()))
		return 0
	}
	name, ok := l.text(n, t, "unit")
	if !ok {
		return 0
	}
	u, ok := units.Named(name)
	if !ok {
		l.errorf(n, t, "unit %q is unknown; it must be %s%s", spell.Short(name), spell.OneOf(units.Names()),
			spell.DidYouMean(name, units.Names()))
		return 0
	}
	if multiplier > int64(limit.MaxWindow/u.Length) { // the product could overflow
		l.errorf(n, t, "%d %ss are longer than the longest window, 10 years", multiplier, u.Name)
		return 0
	}
	return u.Length * time.Duration(multiplier)
}

// figures reads the algorithm and figures of an entry of limits.
func (l *loader) figures(n *yaml.Node, f fields, t *twig) (s limit.Spec) {
	a := f.get("algorithm")
	if a == nil {
		l.errorf(n, t, "the limit has no algorithm; it must be %s", spell.OneOf(algorithmNames()))
		return s
	}
	if a.Value == limit.Concurrency.String() {
		s.Algorithm = limit.Concurrency // which Build reports
		return s
	}
	i, ok := l.word(a, t, "algorithm", algorithmNames()...)
	if !ok {
		return s
	}
	s.Algorithm = limit.Algorithms()[i]
	max, window, rate, burst := f.get("limit"), f.get("window"), f.get("rate"), f.get("burst")
	switch {
	case rate != nil && (max != nil || window != nil):
		l.errorf(rate, t, "the limit has a rate as well as limit and window; one of the two is enough")
	case s.Algorithm.Is(limit.Refilled):
		l.bucket(n, f, t, &s)
	case burst != nil:
		l.errorf(burst, t, "%v does not take a burst; only token_bucket does", s.Algorithm)
	case rate != nil:
		l.rate(rate, t, &s)
	case max == nil || window == nil:
		l.errorf(n, t, "%v needs limit and window (limit: 100, window: 1m), or a rate (rate: 100/min)", s.Algorithm)
	default:
		s.Max, _ = l.number(max, t, "limit")
		s.Window = l.duration(window, t, "window")
	}
	l.calendarOf(f, t, &s)
	return s
}

// bucket reads rate and burst of a token bucket.
func (l *loader) bucket(n *yaml.Node, f fields, t *twig, s *limit.Spec) {
	for _, name := range []string{"limit", "window"} {
		if v := f.get(name); v != nil {
			l.errorf(v, t, "token_bucket does not take a %s; write a rate (100/s) and a burst", name)
			return
		}
	}
	if f.get("rate") == nil {
		l.errorf(n, t, "token_bucket needs a rate, such as 100/s")
		return
	}
	l.rate(f.get("rate"), t, s)
	if b := f.get("burst"); b != nil {
		s.Burst = l.positive(b, t, "burst")
	}
}

func (l *loader) rate(n *yaml.Node, t *twig, s *limit.Spec) {
	text, ok := l.text(n, t, "rate")
	if !ok {
		return
	}
	var err error
	if s.Max, s.Window, err = units.ParseRate(text); err != nil {
		l.errorf(n, t, "rate %q: %v", spell.Short(text), err)
	}
}

func (l *loader) duration(n *yaml.Node, t *twig, what string) time.Duration {
	text, ok := l.text(n, t, what)
	if !ok {
		return 0
	}
	d, err := units.ParseDuration(text)
	if err != nil {
		l.errorf(n, t, "%s %q: %v", what, spell.Short(text), err)
	}
	return d
}

func algorithmNames() []string {
	var names []string
	for _, a := range limit.Algorithms() {
		names = append(names, a.String())
	}
	return names
}
