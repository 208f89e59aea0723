package descriptors

import (
	"bufio"
	"fmt"
	"io"
	"slices"
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
	slices.SortStableFunc(rules, func(a, b *Rule) int { return strings.Compare(a.Domain, b.Domain) })
	b := bufio.NewWriter(w)
	for _, r := range rules {
		r.dump(b)
	}
	return b.Flush()
}

func (r *Rule) dump(w io.Writer) {
	// A line break in a key must not look like another rule.
	place := strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(r.Domain + "." + r.Path)
	rest := r.modes()
	switch {
	case r.Unlimited:
		fmt.Fprintf(w, "%s: unit=UNKNOWN requests_per_unit=0, shadow_mode: %t, unlimited: true%s\n", place, r.Shadow, rest)
	case len(r.Limits) == 0 && r.Concurrency == nil:
		fmt.Fprintf(w, "%s: no limit\n", place)
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		fmt.Fprintf(w, "%s: %s, shadow_mode: %t", place, l.figures(), r.Shadow || l.Shadow)
		if l.Name != "" {
			fmt.Fprintf(w, ", name: %s", l.Name)
		}
		if share := l.Limit.Share(); share > 0 {
			fmt.Fprintf(w, ", local_share: %d", share)
		}
		fmt.Fprintf(w, "%s\n", rest)
	}
	if r.Concurrency != nil {
		fmt.Fprintf(w, "%s: %s, shadow_mode: %t%s\n", place, r.Concurrency.figures(), r.Shadow, rest)
		for i := range r.Concurrency.Tiers {
			fmt.Fprintf(w, "%s: %v\n", place, &r.Concurrency.Tiers[i])
		}
	}
}

// String renders the tier as one line.
func (t *Tier) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "in flight > %d:", t.Threshold)
	if t.Delay > 0 {
		fmt.Fprintf(&b, " delay %s", units.Format(t.Delay))
	}
	if t.Status != 0 {
		fmt.Fprintf(&b, " status %d", t.Status)
	}
	for _, h := range t.Headers {
		fmt.Fprintf(&b, ", %s: %s", h.Name, h.Value)
	}
	if t.Content != "" {
		fmt.Fprintf(&b, ", content: %q", spell.Short(t.Content))
	}
	if t.Name != "" {
		fmt.Fprintf(&b, ", name: %s", t.Name)
	}
	return b.String()
}

// modes renders what else is set on the rule.
func (r *Rule) modes() string {
	var b strings.Builder
	if r.Resource != "" {
		fmt.Fprintf(&b, ", path: %v", r.class)
	}
	if r.Quota {
		b.WriteString(", quota_mode: true")
	}
	if r.shared != nil {
		b.WriteString(", share_threshold: true")
	}
	if r.raw {
		b.WriteString(", counter: value")
	}
	if r.Policy != nil {
		fmt.Fprintf(&b, ", policy: %v", r.Policy)
	}
	if len(r.Replaces) > 0 {
		fmt.Fprintf(&b, ", replaces: %s", strings.Join(r.Replaces, " "))
	}
	if r.OnBackendError != FailDefault {
		fmt.Fprintf(&b, ", on_backend_error: %v", r.OnBackendError)
	}
	if r.OnOverload != FailDefault {
		fmt.Fprintf(&b, ", on_overload: %v", r.OnOverload)
	}
	if r.Charge != ChargeDefault {
		fmt.Fprintf(&b, ", charge: %v", r.Charge)
	}
	if r.Overflow != OverflowDefault {
		fmt.Fprintf(&b, ", overflow: %v", r.Overflow)
	}
	if r.MaxDebt != 0 {
		fmt.Fprintf(&b, ", max_debt: %d", r.MaxDebt)
	}
	return b.String()
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
	var b strings.Builder
	b.WriteString("algorithm=concurrency lease_ttl=" + units.Format(c.LeaseTTL))
	if c.ByHits {
		b.WriteString(" release=hits")
	} else if c.Hold > 0 {
		b.WriteString(" reject_hold=" + units.Format(c.Hold))
	}
	return b.String()
}
