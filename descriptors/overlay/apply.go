package overlay

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// maxWarnings bounds how often the entries of an overlay are complained of in one domain.
const maxWarnings = 100

// A layer lays the entries that concern one domain over its rules.
type layer struct {
	domain  string
	entries []*Entry
	numbers []int // of entries, in the overlay
	made    map[limit.Spec]*limit.Limit
	result  *Result
}

// Apply returns a domain under the overlay. It changes nothing of d, whose rules the
// result shares where no entry matches.
func (o *Overlay) Apply(d *descriptors.DomainSpec) Result {
	r := Result{Domain: d}
	if o == nil || len(o.entries) == 0 {
		return r
	}
	r.used = make([]bool, len(o.entries))
	l := &layer{domain: d.Name, made: map[limit.Spec]*limit.Limit{}, result: &r}
	for i := range o.entries {
		if e := &o.entries[i]; match(e.Domain, d.Name) {
			l.entries, l.numbers = append(l.entries, e), append(l.numbers, i)
		}
	}
	if len(l.entries) == 0 {
		return r
	}
	if rules, changed := l.rules(d.Rules, ""); changed {
		other := *d
		other.Rules, r.Domain, r.Changed = rules, &other, true
	}
	return r
}

// rules returns the rules of one level; it copies what it changes.
func (l *layer) rules(list []*descriptors.RuleSpec, parent string) (out []*descriptors.RuleSpec, changed bool) {
	for i, r := range list {
		path := pathOf(parent, r)
		below, deeper := l.rules(r.Rules, path)
		own := l.matching(r, path)
		if !deeper && len(own) == 0 {
			continue
		}
		if !changed {
			list, changed = slices.Clone(list), true
		}
		other := *r
		other.Rules = below
		if len(own) > 0 {
			l.rule(&other, own, path)
		}
		list[i] = &other
	}
	return list, changed
}

// pathOf is a rule's path as the compiled rule has it.
func pathOf(parent string, r *descriptors.RuleSpec) string {
	if parent == "" {
		return r.Label()
	}
	return parent + "." + r.Label()
}

// matching returns the entries for a rule, and notes that they are used.
func (l *layer) matching(r *descriptors.RuleSpec, path string) (own []*Entry) {
	if len(r.Limits) == 0 {
		return nil
	}
	for i, e := range l.entries {
		if match(e.Rule, path) {
			own, l.result.used[l.numbers[i]] = append(own, e), true
		}
	}
	return own
}

// rule lays entries over a copy of a rule.
func (l *layer) rule(r *descriptors.RuleSpec, own []*Entry, path string) {
	r.Limits = slices.Clone(r.Limits)
	for _, e := range own {
		if e.OnBackendError != descriptors.FailDefault {
			r.OnBackendError = e.OnBackendError
		}
		if e.OnOverload != descriptors.FailDefault {
			r.OnOverload = e.OnOverload
		}
		if e.MaxKeys > 0 {
			r.MaxKeys = e.MaxKeys
		}
		if e.Reserve != nil {
			r.Reserve = e.Reserve
		}
		if e.Choose != "" {
			r.Choose, r.Prefer = e.Choose, e.Prefer
		}
		if len(e.RequestHeaders) > 0 {
			r.RequestHeaders = e.RequestHeaders
		}
		for i := range r.Limits {
			if e.WarnAt > 0 && !r.Limits[i].Unlimited {
				r.Limits[i].WarnAt = e.WarnAt
			}
			err := l.limit(&r.Limits[i], e)
			if err == nil && e.Overflow != descriptors.OverflowDefault {
				r.Overflow, r.MaxDebt = e.Overflow, e.MaxDebt
			}
			if err != nil && len(l.result.Warnings) < maxWarnings {
				l.result.Warnings = append(l.result.Warnings, warning(e, l.domain+"/"+path, "the limit stays as it was: %v", err))
			}
		}
	}
}

// limit lays an entry over a limit of a rule. If that makes no limit it changes nothing.
func (l *layer) limit(ls *descriptors.LimitSpec, e *Entry) error {
	if ls.Unlimited || ls.Broken {
		return nil
	}
	figures, share := over(e, ls.Figures), ls.Share
	if e.LocalShare != 0 {
		share = e.LocalShare
	}
	made := l.made[figures]
	if made == nil {
		var err error
		if made, err = limit.New(figures); err != nil {
			return err
		}
		l.made[figures] = made
	}
	switch {
	case share != 0 && !made.Is(limit.Prefetched):
		return fmt.Errorf("%v has no local_share", made.Algorithm())
	case share > made.Capacity():
		return fmt.Errorf("local_share %d is more than the limit ever has room for, %d", share, made.Capacity())
	}
	if figures.Window != ls.Figures.Window || figures.Algorithm != ls.Figures.Algorithm || e.Calendar != nil {
		ls.AnyMonth = false
	}
	ls.Figures, ls.Share = figures, share
	return nil
}

// over returns the figures of a limit under the entry.
func over(e *Entry, s limit.Spec) limit.Spec {
	if e.Algorithm != 0 {
		s.Algorithm = e.Algorithm
	}
	if e.Window > 0 {
		s.Window = e.Window
	}
	if m := e.Multiplier; m > 1 {
		if int64(s.Window) > int64(limit.MaxWindow)/m {
			s.Window = limit.MaxWindow + 1 // which limit.New refuses
		} else {
			s.Window *= time.Duration(m)
		}
	}
	if e.Calendar != nil {
		s.Calendar, s.Zone = *e.Calendar, e.Zone
	}
	if e.Overflow != descriptors.OverflowDefault {
		s.Overflow, s.MaxDebt = e.Overflow.Of(), e.MaxDebt
	}
	if e.Burst > 0 {
		s.Burst = e.Burst
	}
	if !s.Algorithm.Is(limit.Refilled) {
		s.Burst = 0
	}
	return s
}
