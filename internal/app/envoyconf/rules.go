package envoyconf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// wants is what a domain's rules want of Envoy.
type wants struct {
	descriptors.Needs
	shapes   []shape // of the rules under descriptors
	Limits   bool    // some rule limits how often
	Delays   bool    // some tier only delays
	delay    time.Duration
	statuses []int         // of refusals by tiers
	Flush    time.Duration // how often the access log reports requests in flight
	Leases   bool          // the ends of some requests must be reported
	hits     []string      // rules that count by hits
	// resourceHits: resources are counted down at the request's end.
	resourceHits bool
	// Reserves: some rule reserves what a request may use, and settles it by token.
	Reserves bool
	oldest   []string // rules that settle without a token
	Choice   *choice  // nil: no rule is chosen from others
}

// A shape is the keys of descriptors that some rules match.
type shape struct {
	keys   []string
	values [][]string // of each key; "" among them is any
	choose string     // what the rules are chosen for, if anything
	hits   bool       // counted down at the request's end
	other  bool       // some rule would suffer from that
}

// String names the shape's entries, with their values where those are few.
func (s *shape) String() string {
	var entries []string
	for i, key := range s.keys {
		if len(s.values[i]) <= 4 && !slices.Contains(s.values[i], "") {
			key += "=" + strings.Join(s.values[i], "|")
		}
		entries = append(entries, key)
	}
	return strings.Join(entries, ", ")
}

// find chooses the domain and finds what its rules want.
func find(set *descriptors.Set, spec *descriptors.Spec, opt *Options) (*wants, error) {
	w := new(wants)
	domains := set.Domains()
	switch {
	case opt.Domain == "" && len(domains) == 1:
		opt.Domain = domains[0]
	case opt.Domain == "":
		return nil, fmt.Errorf("the rules have the domains %s; an Envoy asks about one, so say which",
			strings.Join(domains, ", "))
	case !slices.Contains(domains, opt.Domain):
		return nil, fmt.Errorf("the rules have no domain %q, but %s", opt.Domain, strings.Join(domains, ", "))
	}
	w.Needs = set.Needs(opt.Domain)
	w.rules(set, opt)
	if err := w.tree(spec, opt.Domain); err != nil {
		return nil, err
	}
	if len(w.oldest) > 0 {
		return nil, fmt.Errorf("the rule %s has match: oldest, which is for gateways that ask and report by the same "+
			"descriptor; leave match out: this configuration settles by token", w.oldest[0])
	}
	return w, w.countable(set, opt)
}

// Bounds of how often the access log reports a request in flight.
const (
	mostFlush  = 5 * time.Second
	leastFlush = 10 * time.Millisecond
)

// rules looks at every rule of the domain.
func (w *wants) rules(set *descriptors.Set, opt *Options) {
	grace := cmp.Or(max(opt.OwnerGrace, 0), leases.DefaultOwnerGrace)
	// One of three may be lost or late.
	w.Flush = min(mostFlush, grace/3)
	for _, r := range set.Rules() {
		if r.Domain != opt.Domain {
			continue
		}
		w.Limits = w.Limits || len(r.Limits) > 0
		if r.Reserve != nil && r.Reserve.Match == descriptors.MatchOldest {
			w.oldest = append(w.oldest, r.Path)
		} else if r.Reserve != nil {
			w.Reserves, w.Leases = true, true
			w.Flush = min(w.Flush, r.Reserve.TTL/3)
		}
		if r.Concurrency == nil {
			continue
		}
		if r.Concurrency.ByHits {
			w.hits, w.resourceHits = append(w.hits, r.Path), w.resourceHits || r.Resource != ""
		} else {
			w.Leases, w.Flush = true, min(w.Flush, r.Concurrency.LeaseTTL/3)
		}
		for _, t := range r.Concurrency.Tiers {
			if t.Status != 0 {
				w.statuses = append(w.statuses, t.Status)
			} else if t.Delay > 0 {
				w.Delays, w.delay = true, max(w.delay, t.Delay)
			}
		}
	}
	w.Flush = max(w.Flush, leastFlush).Truncate(time.Millisecond)
}

// tree finds the shapes of the domain's descriptors.
func (w *wants) tree(spec *descriptors.Spec, domain string) error {
	for _, d := range spec.Domains {
		if d.Name != domain {
			continue
		}
		if err := w.below(nil, nil, d.Rules); err != nil {
			return err
		}
	}
	return nil
}

func (w *wants) below(keys, values []string, rules []*descriptors.RuleSpec) error {
	for _, r := range rules {
		keys, values := append(slices.Clone(keys), r.Key), append(slices.Clone(values), r.Value)
		if r.Choose != "" {
			if err := w.choose(r); err != nil {
				return err
			}
		}
		if limits, c := len(r.Limits) > 0, r.Concurrency; limits || c != nil {
			s := w.shape(keys, r.Choose)
			for j, v := range values {
				if !slices.Contains(s.values[j], v) {
					s.values[j] = append(s.values[j], v)
				}
			}
			hits := c != nil && c.ByHits
			s.hits = s.hits || hits
			s.other = s.other || limits || !hits
		}
		if err := w.below(keys, values, r.Rules); err != nil {
			return err
		}
	}
	return nil
}

func (w *wants) shape(keys []string, choose string) *shape {
	same := func(s shape) bool { return s.choose == choose && slices.Equal(s.keys, keys) }
	if i := slices.IndexFunc(w.shapes, same); i >= 0 {
		return &w.shapes[i]
	}
	w.shapes = append(w.shapes, shape{keys: keys, values: make([][]string, len(keys)), choose: choose})
	return &w.shapes[len(w.shapes)-1]
}

// countable checks that counting down at a request's end, which names no rule,
// takes from no other.
func (w *wants) countable(set *descriptors.Set, opt *Options) error {
	if !w.Hits() {
		return nil
	}
	if opt.Version.before(withHits) {
		return fmt.Errorf("the rule %s has release: hits, but Envoy can count down from %v on only, and this is for %v; "+
			"leave release out",
			w.hits[0], withHits, opt.Version)
	}
	const why = "the end of a request would be taken off both; give all of them release: hits and nothing else, or none"
	for i := range w.shapes {
		if s := &w.shapes[i]; s.hits && s.other {
			return fmt.Errorf("among the rules for descriptors of %v, one has release: hits, and one leases or limits: %s", s,
				why)
		}
	}
	hits, other := "", ""
	for _, r := range set.Rules() {
		switch {
		case r.Domain != opt.Domain || r.Resource == "":
		case r.Concurrency != nil && r.Concurrency.ByHits && len(r.Limits) == 0:
			hits = r.Path
		case r.Concurrency != nil && r.Concurrency.ByHits:
			hits, other = r.Path, r.Path
		case r.Concurrency != nil || len(r.Limits) > 0:
			other = r.Path
		}
	}
	if hits != "" && other != "" {
		return fmt.Errorf("the resource %s has release: hits, and %s leases or limits: %s", hits, other, why)
	}
	return nil
}

// Hits reports whether some rule counts by hits.
func (w *wants) Hits() bool { return len(w.hits) > 0 }

// choose notes what a rule is chosen from.
func (w *wants) choose(r *descriptors.RuleSpec) error {
	switch {
	case w.Choice != nil && w.Choice.Name != r.Choose:
		return fmt.Errorf("the rules choose %q and %q; a route of Envoy follows one choice: give the rules one name, or "+
			"write the routes yourself (docs/routing.md)", w.Choice.Name, r.Choose)
	case !plainName.MatchString(r.Choose):
		return fmt.Errorf("the rules choose %q, which cannot be part of a header's name; use letters, digits and hyphens",
			r.Choose)
	case w.Choice == nil:
		w.Choice = &choice{Name: r.Choose}
	}
	if r.Value == "" || strings.Contains(r.Value, "*") {
		return nil // see shape.actions
	}
	if !plainName.MatchString(r.Value) {
		return fmt.Errorf("a rule that is chosen has the value %q, which is no name of a cluster; use letters, digits, "+
			"hyphens and dots", r.Value)
	}
	same := func(c candidate) bool { return c.value == r.Value }
	if !slices.ContainsFunc(w.Choice.candidates, same) {
		w.Choice.candidates = append(w.Choice.candidates, candidate{r.Value, r.Prefer})
	}
	return nil
}
