package descriptors

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// A Diff is what differs between two sets of rules.
type Diff struct {
	// DomainsAdded and DomainsRemoved are in alphabetical order.
	DomainsAdded, DomainsRemoved []string
	// Limits are the limits that came, went or have other figures, in the order of the new set; those that went
	// come last.
	Limits []LimitChange
}

// A LimitChange is a limit that two sets have differently.
type LimitChange struct {
	// Limit is "domain/path:name". A limit without a name has its number in the rule, unless it is the first.
	Limit string
	// Old and New are the figures, such as "600/5m"; empty where the set does not have the limit. A rule that
	// exempts what it matches has "no limit", one with unlimited: true has "unlimited".
	Old, New string
	// TakenAway: the old set limits what the new one does not.
	TakenAway bool
}

// String renders the change as "domain/path 600/5m -> 6/5m".
func (c LimitChange) String() string {
	switch {
	case c.Old == "":
		return "+ " + c.Limit + " " + c.New
	case c.New == "":
		return "- " + c.Limit + " " + c.Old
	}
	return c.Limit + " " + c.Old + " -> " + c.New
}

// Empty reports whether nothing differs.
func (d *Diff) Empty() bool {
	return len(d.DomainsAdded)+len(d.DomainsRemoved)+len(d.Limits) == 0
}

// TakenAway returns how many limits of the old set the new one does not have.
func (d *Diff) TakenAway() (n int) {
	for i := range d.Limits {
		if d.Limits[i].TakenAway {
			n++
		}
	}
	return n
}

// Lines renders the difference, at most that many lines. The last one counts those that are left out.
func (d *Diff) Lines(most int) []string {
	var lines []string
	further := 0
	add := func(line string) {
		if len(lines) < most-1 || len(lines) < most && d.size() <= most {
			lines = append(lines, line)
		} else {
			further++
		}
	}
	for _, name := range d.DomainsRemoved {
		add("- domain " + spell.Short(name))
	}
	for _, name := range d.DomainsAdded {
		add("+ domain " + spell.Short(name))
	}
	for i := range d.Limits {
		add(d.Limits[i].String())
	}
	if further > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", further))
	}
	return lines
}

func (d *Diff) size() int { return len(d.DomainsRemoved) + len(d.DomainsAdded) + len(d.Limits) }

// Compare returns what differs between old, which may be nil, and s. Only what limits is compared: domains, limits
// and their figures.
func (s *Set) Compare(old *Set) *Diff {
	d := &Diff{}
	old = cmp.Or(old, &Set{})
	d.DomainsAdded, d.DomainsRemoved = missing(s, old), missing(old, s)
	now, before := s.rules, old.rules
	if added, gone, ok := s.Since(old); ok {
		now, before = added, gone
	}
	were := make(map[limitID]figures, len(before))
	for _, r := range before {
		r.eachLimit(func(id limitID, f figures) { were[id] = f })
	}
	for _, r := range now {
		r.eachLimit(func(id limitID, f figures) {
			was := were[id]
			delete(were, id)
			if was.text != f.text {
				d.Limits = append(d.Limits, LimitChange{id.String(), was.text, f.text, was.limits && !f.limits})
			}
		})
	}
	var gone []LimitChange
	for id, was := range were {
		gone = append(gone, LimitChange{Limit: id.String(), Old: was.text, TakenAway: was.limits})
	}
	sort.Slice(gone, func(i, j int) bool { return gone[i].Limit < gone[j].Limit })
	d.Limits = append(d.Limits, gone...)
	return d
}

// missing returns the domains of s that other does not have, in alphabetical order.
func missing(s, other *Set) (names []string) {
	for name := range s.domains {
		if other.domains[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A limitID is a limit's place in the rules: its name or number in the rule at a path.
type limitID struct {
	domain, path string
	name         string // if it has one
	number       int    // in the rule, if it has no name; inFlight for the limit on requests in flight
}

const inFlight = -1

func (id limitID) String() string {
	text := spell.Short(id.domain) + "/" + spell.Short(id.path)
	switch {
	case id.name != "":
		return text + ":" + id.name
	case id.number > 0:
		return text + "#" + strconv.Itoa(id.number)
	}
	return text
}

// figures are those of a limit, as a [LimitChange] has them, and whether it limits anything.
type figures struct {
	text   string
	limits bool
}

// eachLimit calls f for each limit of r; for a rule without one as if it had one.
func (r *Rule) eachLimit(f func(limitID, figures)) {
	id := limitID{domain: r.Domain, path: r.Path}
	for i := range r.Limits {
		l := &r.Limits[i]
		if id.name, id.number = l.Name, i; id.name != "" {
			id.number = 0
		}
		var text line
		text.add("%s", LimitText(l.Limit))
		text.addIf(len(r.By) > 0, " by %s", strings.Join(r.By, " "))
		text.addIf(strings.Contains(r.Networks, " "), " network %s", r.Networks) // one is in the rule's path
		text.addIf(r.Except != "", " except %s", r.Except)
		text.addIf(r.MaxKeys != 0, " max_keys %d", r.MaxKeys)
		text.addIf(l.WarnAt != 0, " warn_at %d%%", l.WarnAt)
		text.addIf(r.Choose != "", " choose %s prefer %d", r.Choose, r.Prefer)
		text.addIf(l.Reserved, " reserve %v", r.Reserve)
		text.addIf(r.Shadow || l.Shadow, " shadow")
		f(id, figures{text.String(), true})
	}
	id.name, id.number = "", 0
	switch {
	case r.Concurrency != nil:
		id.number = inFlight
		text := r.Concurrency.brief()
		if r.Shadow {
			text += " shadow"
		}
		f(id, figures{text, true})
	case len(r.Limits) > 0:
	case r.Unlimited:
		f(id, figures{text: "unlimited"})
	default:
		f(id, figures{text: "no limit"})
	}
}

// LimitText renders a limit's figures as people say them: 600/5m, sliding_log 100/1h, token_bucket 10/1s burst 20,
// 1000/calendar month Europe/Berlin, 5 in flight.
func LimitText(l *limit.Limit) string {
	s := l.Spec()
	unit, _ := units.Of(s.Window)
	switch {
	case l.Is(limit.Leased):
		return fmt.Sprintf("%d in flight", s.Max)
	case s.Calendar: // its months have not the 720h of the window
		return strings.TrimSuffix(fmt.Sprintf("%d/calendar %s %v", s.Max, unit.Name, s.Zone), " UTC")
	}
	return policies.TextOf(s)
}

// brief renders when tiers apply and what they do: "in flight > 5: status 503".
func (c *Concurrency) brief() string {
	var tiers []string
	for i := range c.Tiers {
		t := Tier{Threshold: c.Tiers[i].Threshold, Delay: c.Tiers[i].Delay, Status: c.Tiers[i].Status}
		tiers = append(tiers, t.String())
	}
	return strings.Join(tiers, "; ")
}
