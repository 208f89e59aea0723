package rulefile

import (
	"math"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/spell"
	"github.com/headgate-rls/headgate/internal/units"
	"github.com/headgate-rls/headgate/limit"
)

// limitsOf reads a rule's rate_limit or limits. It says whether their counters
// are called by the value of the last entry alone.
func (l *loader) limitsOf(f fields, t *twig, r *descriptors.Body) (byValue bool) {
	one, many := f.get("rate_limit"), f.get("limits")
	if one != nil && many != nil {
		l.errorf(many, t, "the rule has rate_limit and limits; write the former as an entry of limits")
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
	i := 0
	l.list(many, t, "limits", func(n *yaml.Node) {
		l.limit(n, t, r, i, counters)
		i++
	})
	for _, o := range r.Limits {
		if o.Name != "" && slices.Contains(r.Replaces, o.Name) {
			l.errorf(many, t, "the rule replaces its own limit %q, which then never applies", o.Name)
		}
	}
	if len(counters) > 1 {
		l.errorf(many, t, "the limits of one rule must all have the same counter")
	}
	byValue = counters[1]
	if byValue && t.rule != nil && t.rule.ShareThreshold {
		l.errorf(many, t, "counter: value and share_threshold contradict each other")
	}
	return byValue
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
	name := l.name(f.get("name"), t)
	l.replaces(f.get("replaces"), t, r, name)
	if l.boolean(f.get("unlimited"), t, "unlimited") {
		r.Unlimited, r.UnlimitedName = true, name
		l.unlimited(f, t)
		return
	}
	window, ok := l.unit(n, f, t)
	count := f.get("requests_per_unit")
	if count == nil || isNull(count) {
		l.errorf(n, t, "rate_limit has no requests_per_unit; write 0 to refuse everything, or unlimited: true")
		return
	}
	most, good := l.integer(count, t, "requests_per_unit", 0, math.MaxUint32)
	if !ok || !good {
		return
	}
	spec := limit.Spec{Algorithm: limit.FixedWindow, Max: most, Window: window}
	if made := l.make(n, t, spec); made != nil {
		r.Limits = []descriptors.RuleLimit{{Name: name, Limit: made.WithShare(l.localShare(f.get("local_share"), t, made)), KeyPart: spec.Algorithm.KeyLetter()}}
	}
}

// unlimited reports what contradicts unlimited: true.
func (l *loader) unlimited(f fields, t *twig) {
	if n := f.get("unit"); n != nil && !isNull(n) && n.Value != "" {
		l.errorf(n, t, "unlimited goes without a unit")
	}
	if n := f.get("unit_multiplier"); n != nil {
		l.errorf(n, t, "unlimited goes without a unit_multiplier")
	}
	if n := f.get("requests_per_unit"); n != nil {
		l.warnf(n, t, "requests_per_unit has no effect beside unlimited")
	}
	if n := f.get("local_share"); n != nil {
		l.errorf(n, t, "unlimited goes without a local_share")
	}
}

// unit returns the window that unit and unit_multiplier make.
func (l *loader) unit(parent *yaml.Node, f fields, t *twig) (time.Duration, bool) {
	multiplier := int64(1)
	if n := f.get("unit_multiplier"); n != nil {
		var ok bool
		if multiplier, ok = l.integer(n, t, "unit_multiplier", 1, math.MaxUint32); !ok {
			return 0, false
		}
	}
	n := f.get("unit")
	if n == nil || isNull(n) {
		l.errorf(parent, t, "rate_limit has no unit; it must be %s", spell.OneOf(units.Names()))
		return 0, false
	}
	name, ok := l.text(n, t, "unit", maxName)
	if !ok {
		return 0, false
	}
	if u, ok := units.Named(name); ok {
		if multiplier > int64(limit.MaxWindow/u.Length) {
			l.errorf(n, t, "%d %ss are longer than the longest window, 10 years", multiplier, u.Name)
			return 0, false
		}
		return u.Length * time.Duration(multiplier), true
	}
	l.errorf(n, t, "unit %q is unknown; it must be %s%s", name, spell.OneOf(units.Names()), spell.DidYouMean(name, units.Names()))
	return 0, false
}

// make builds a limit, or takes the equal one of another rule.
func (l *loader) make(n *yaml.Node, t *twig, s limit.Spec) *limit.Limit {
	if made := l.limits[s]; made != nil {
		return made
	}
	made, err := limit.New(s)
	if err != nil {
		l.errorf(n, t, "%v", err)
		return nil
	}
	l.limits[s] = made
	return made
}

// limit reads entry number i of limits.
func (l *loader) limit(n *yaml.Node, t *twig, r *descriptors.Body, i int, counters map[int]bool) {
	f, ok := l.fields(n, levelLimit, t)
	if !ok {
		return
	}
	name := l.name(f.get("name"), t)
	if name != "" && slices.ContainsFunc(r.Limits, func(o descriptors.RuleLimit) bool { return o.Name == name }) {
		l.errorf(f.get("name"), t, "two limits of the rule are called %q", name)
	}
	l.replaces(f.get("replaces"), t, r, name)
	counter := 0
	if c := f.get("counter"); c != nil {
		if counter, ok = l.word(c, t, "counter", "entries", "value"); !ok {
			return
		}
	}
	counters[counter] = true
	shadow := l.boolean(f.get("shadow"), t, "shadow")
	spec, ok := l.spec(n, f, t)
	if !ok {
		return
	}
	made := l.make(n, t, spec)
	if made == nil {
		return
	}
	part := spec.Algorithm.KeyLetter()
	if name != "" {
		part += ":" + name
	} else {
		part += "#" + strconv.Itoa(i)
	}
	made = made.WithShare(l.localShare(f.get("local_share"), t, made))
	r.Limits = append(r.Limits, descriptors.RuleLimit{Name: name, Limit: made, KeyPart: part, Shadow: shadow})
}

// spec reads the algorithm and figures of an entry of limits.
func (l *loader) spec(n *yaml.Node, f fields, t *twig) (limit.Spec, bool) {
	var s limit.Spec
	a := f.get("algorithm")
	if a == nil {
		l.errorf(n, t, "the limit has no algorithm; it must be %s", spell.OneOf(algorithmNames()))
		return s, false
	}
	if a.Value == limit.Concurrency.String() {
		l.errorf(a, t, "limits do not have the algorithm concurrency; write concurrency: in the rule itself")
		return s, false
	}
	i, ok := l.word(a, t, "algorithm", algorithmNames()...)
	if !ok {
		return s, false
	}
	s.Algorithm = limit.Algorithms()[i]
	max, window, rate, burst := f.get("limit"), f.get("window"), f.get("rate"), f.get("burst")
	if rate != nil && (max != nil || window != nil) {
		l.errorf(rate, t, "the limit has a rate as well as limit and window; one of the two is enough")
		return s, false
	}
	if s.Algorithm.Is(limit.Refilled) {
		ok = l.bucket(n, f, t, &s)
		return s, ok
	}
	if burst != nil {
		l.errorf(burst, t, "%v does not take a burst; only token_bucket does", s.Algorithm)
		return s, false
	}
	if rate != nil {
		ok = l.rate(rate, t, &s)
		return s, ok
	}
	if max == nil || window == nil {
		l.errorf(n, t, "%v needs limit and window (limit: 100, window: 1m), or a rate (rate: 100/min)", s.Algorithm)
		return s, false
	}
	s.Max, ok = l.integer(max, t, "limit", 0, limit.MaxUnits)
	var good bool
	s.Window, good = l.duration(window, t, "window")
	return s, ok && good
}

// bucket reads rate and burst of a token bucket.
func (l *loader) bucket(n *yaml.Node, f fields, t *twig, s *limit.Spec) bool {
	for _, name := range []string{"limit", "window"} {
		if v := f.get(name); v != nil {
			l.errorf(v, t, "token_bucket does not take a %s; write a rate (100/s) and a burst", name)
			return false
		}
	}
	if f.get("rate") == nil {
		l.errorf(n, t, "token_bucket needs a rate, such as 100/s")
		return false
	}
	ok := l.rate(f.get("rate"), t, s)
	if b := f.get("burst"); b != nil {
		var good bool
		if s.Burst, good = l.integer(b, t, "burst", 1, limit.MaxUnits); !good {
			return false
		}
	}
	return ok
}

func (l *loader) rate(n *yaml.Node, t *twig, s *limit.Spec) bool {
	text, ok := l.text(n, t, "rate", maxName)
	if !ok {
		return false
	}
	var err error
	if s.Max, s.Window, err = parseRate(text); err != nil {
		l.errorf(n, t, "rate %q: %v", text, err)
	}
	return err == nil
}

func (l *loader) duration(n *yaml.Node, t *twig, what string) (time.Duration, bool) {
	text, ok := l.text(n, t, what, maxName)
	if !ok {
		return 0, false
	}
	d, err := parseDuration(text)
	if err != nil {
		l.errorf(n, t, "%s %q: %v", what, text, err)
	}
	return d, err == nil
}

// name reads a limit's name. It goes into a response header between quotes.
func (l *loader) name(n *yaml.Node, t *twig) string {
	if n == nil {
		return ""
	}
	s, ok := l.text(n, t, "name", maxName)
	if !ok {
		return ""
	}
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			l.errorf(n, t, "name %q must be of visible ASCII characters without quotes and backslashes", s)
			return ""
		}
	}
	return s
}

func algorithmNames() []string {
	var names []string
	for _, a := range limit.Algorithms() {
		names = append(names, a.String())
	}
	return names
}

// localShare reads local_share of a limit; zero if it is not set. It is for
// limits that count units per time: a request in flight cannot be taken ahead.
func (l *loader) localShare(n *yaml.Node, t *twig, of *limit.Limit) int64 {
	if n == nil {
		return 0
	}
	if !of.Is(limit.Prefetched) {
		l.errorf(n, t, "%v has no local_share", of.Algorithm())
		return 0
	}
	share, ok := l.integer(n, t, "local_share", 2, limit.MaxUnits)
	if ok && share > of.Capacity() {
		l.errorf(n, t, "local_share %d is more than the limit ever has room for, %d", share, of.Capacity())
	}
	return share
}
