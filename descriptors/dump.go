package descriptors

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// Dump writes all rules as text, one line per limit and one per tier, domains
// in alphabetical order and rules in the order of their files. Lines start like
// the reference service's; what it does not have follows.
func (s *Set) Dump(w io.Writer) error {
	rules := slices.Clone(s.rules)
	sort.SliceStable(rules, func(i, j int) bool { return rules[i].Domain < rules[j].Domain })
	b := bufio.NewWriter(w)
	for _, r := range rules {
		r.dump(b)
	}
	return b.Flush()
}

// DumpAsReference writes all limits as envoyproxy/ratelimit does, and nothing else.
func (s *Set) DumpAsReference(w io.Writer) error {
	rules := slices.Clone(s.rules)
	slices.SortStableFunc(rules, func(a, b *Rule) int { return strings.Compare(a.Domain, b.Domain) })
	b := bufio.NewWriter(w)
	for _, r := range rules {
		figures := ""
		switch {
		case r.Unlimited:
			figures = "unit=UNKNOWN requests_per_unit=0"
		case len(r.Limits) > 0:
			figures = r.Limits[0].figures()
		default:
			continue
		}
		fmt.Fprintf(b, "%s: %s, shadow_mode: %t, quota_mode: %t\n", r.where(), figures, r.Shadow, r.Quota)
	}
	return b.Flush()
}

// where says where the rule is. A line break in a key must not look like another rule.
func (r *Rule) where() string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(r.Domain + "." + r.Path)
}

func (r *Rule) dump(w io.Writer) {
	place, rest := r.where(), r.modes()
	switch {
	case r.Unlimited:
		fmt.Fprintf(w, "%s: unit=UNKNOWN requests_per_unit=0, shadow_mode: %t, unlimited: true%s\n", place, r.Shadow, rest)
	case len(r.Limits) == 0 && r.Concurrency == nil:
		fmt.Fprintf(w, "%s: no limit\n", place)
	}
	for i := range r.Limits {
		var l line
		one := &r.Limits[i]
		l.add("%s: %s, shadow_mode: %t", place, one.figures(), r.Shadow || one.Shadow)
		l.addIf(one.Name != "", ", name: %s", one.Name)
		l.addIf(one.WarnAt != 0, ", warn_at: %d%%", one.WarnAt)
		l.addIf(one.Limit.Share() != 0, ", local_share: %s", shareText(one.Limit.Share()))
		fmt.Fprintf(w, "%s%s\n", l.String(), rest)
	}
	if r.Concurrency != nil {
		fmt.Fprintf(w, "%s: %s, shadow_mode: %t%s\n", place, r.Concurrency.figures(), r.Shadow, rest)
		for i := range r.Concurrency.Tiers {
			fmt.Fprintf(w, "%s: %v\n", place, &r.Concurrency.Tiers[i])
		}
	}
}

// A line is text of parts.
type line struct{ strings.Builder }

func (l *line) add(format string, args ...any) { fmt.Fprintf(l, format, args...) }

// addIf adds a part if something is set.
func (l *line) addIf(set bool, format string, args ...any) {
	if set {
		l.add(format, args...)
	}
}

// String renders the tier as one line.
func (t *Tier) String() string {
	var l line
	l.add("in flight > %d:", t.Threshold)
	l.addIf(t.Delay > 0, " delay %s", units.Format(t.Delay))
	l.addIf(t.Status != 0, " status %d", t.Status)
	for _, h := range t.Headers {
		l.add(", %s: %s", h.Name, h.Value)
	}
	l.addIf(t.Content != "", ", content: %q", spell.Short(t.Content))
	l.addIf(t.Name != "", ", name: %s", t.Name)
	return l.String()
}

// modes renders what else is set on the rule.
func (r *Rule) modes() string {
	var l line
	l.addIf(r.Resource != "", ", path: %v", r.class)
	l.addIf(len(r.By) > 0, ", by: %s", strings.Join(r.By, " "))
	l.addIf(r.Networks != "", ", network: %s", r.Networks)
	l.addIf(r.Except != "", ", except: %s", r.Except)
	l.addIf(r.Quota, ", quota_mode: true")
	l.addIf(r.shared != nil, ", share_threshold: true")
	l.addIf(r.raw, ", counter: value")
	l.addIf(r.Policy != nil, ", policy: %v", r.Policy)
	l.addIf(r.Choose != "", ", choose: %s", r.Choose)
	l.addIf(r.Prefer != 0, ", prefer: %d", r.Prefer)
	l.addIf(len(r.Replaces) > 0, ", replaces: %s", strings.Join(r.Replaces, " "))
	l.addIf(r.OnBackendError != FailDefault, ", on_backend_error: %v", r.OnBackendError)
	l.addIf(r.OnOverload != FailDefault, ", on_overload: %v", r.OnOverload)
	l.addIf(r.Charge != ChargeDefault, ", charge: %v", r.Charge)
	l.addIf(r.Overflow != OverflowDefault, ", overflow: %v", r.Overflow)
	l.addIf(r.MaxDebt != 0, ", max_debt: %d", r.MaxDebt)
	l.addIf(r.MaxKeys != 0, ", max_keys: %d", r.MaxKeys)
	l.addIf(r.Reserve != nil, ", reserve: %v", r.Reserve)
	return l.String()
}

// figures renders a limit's numbers: those of a plain rate_limit as the
// reference does, with the longest unit that fits.
func (l *RuleLimit) figures() string {
	s := l.Limit.Spec()
	if l.KeyPart == limit.FixedWindow.KeyLetter() {
		switch u, n := units.Of(s.Window); n {
		case 0:
		case 1:
			return fmt.Sprintf("unit=%s requests_per_unit=%d%s", strings.ToUpper(u.Name), s.Max, calendar(&s))
		default:
			return fmt.Sprintf("unit=%s requests_per_unit=%d unit_multiplier=%d", strings.ToUpper(u.Name), s.Max, n)
		}
	}
	if s.Algorithm.Is(limit.Refilled) {
		return fmt.Sprintf("algorithm=%v rate=%d/%s burst=%d", s.Algorithm, s.Max, units.Format(s.Window), s.Burst)
	}
	return fmt.Sprintf("algorithm=%v limit=%d window=%s%s", s.Algorithm, s.Max, units.Format(s.Window), calendar(&s))
}

// calendar renders whose days, weeks, months or years windows are.
func calendar(s *limit.Spec) string {
	if !s.Calendar {
		return ""
	}
	return fmt.Sprintf(" calendar=true time_zone=%v", s.Zone)
}

// figures renders the limit itself.
func (c *Concurrency) figures() string {
	var l line
	l.add("algorithm=concurrency lease_ttl=%s", units.Format(c.LeaseTTL))
	l.addIf(c.ByHits, " release=hits")
	l.addIf(!c.ByHits && c.Hold > 0, " reject_hold=%s", units.Format(c.Hold))
	return l.String()
}
