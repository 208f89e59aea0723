package ratelimit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// CapProblems returns every limit of set that a backend with caps cannot keep.
func CapProblems(set *descriptors.Set, caps *backends.Caps) []descriptors.Problem {
	return capProblems(set.Rules(), caps)
}

// checkCaps reports them of a set that comes after one that the backend keeps.
func checkCaps(set, old *descriptors.Set, caps *backends.Caps) error {
	added, _, ok := set.Since(old)
	// Some share a log with any rule, or are chosen from others.
	related := func(r *descriptors.Rule) bool { return r.Raw() || r.Choose != "" }
	if !ok || slices.ContainsFunc(added, related) {
		added = set.Rules()
	}
	return joined(capProblems(added, caps))
}

func joined(problems []descriptors.Problem) error {
	var errs []error
	for _, p := range problems {
		errs = append(errs, errors.New(p.String()))
	}
	return errors.Join(errs...)
}

func capProblems(rules []*descriptors.Rule, caps *backends.Caps) []descriptors.Problem {
	var list []descriptors.Problem
	var shared sharedLimit
	choices := candidates{}
	var kept *limit.Limit // rules share limits, and most rules the one of the rule before
	for _, r := range rules {
		report := func(err error) {
			if err != nil {
				file, line := r.Place()
				list = append(list, descriptors.Problem{File: file, Line: line, Path: r.Domain + "/" + r.Path,
					Message: fmt.Sprintf("the backend %s cannot keep this limit: %v", caps.Title(), err)})
			}
		}
		for i := range r.Limits {
			if l := r.Limits[i].Limit; l != kept {
				err := caps.Check(l)
				report(err)
				if err == nil {
					kept = l
				}
			}
		}
		if r.Concurrency != nil {
			report(caps.Check(r.Concurrency.Limit))
		}
		if r.Reserve != nil {
			report(checkReserve(r, caps))
		}
		if r.Raw() {
			report(shared.check(r, caps))
		}
		if r.Choose != "" {
			report(choices.check(r, caps))
		}
		if caps.PlainWindows {
			report(checkPlain(r, caps))
		}
	}
	return list
}

// checkReserve returns an error if units of r cannot be reserved: a reservation is kept as a
// request in flight is, and a request that costs more than it reserved must be able to owe it.
func checkReserve(r *descriptors.Rule, caps *backends.Caps) error {
	if _, ok := caps.Algorithms[limit.Concurrency]; !ok {
		return fmt.Errorf("%w: reserve needs a store that counts requests in flight", backends.ErrUnsupported)
	}
	for i := range r.Limits {
		l := r.Limits[i].Limit
		if r.Limits[i].Reserved && caps.Algorithms[l.Algorithm()].Overflow == limit.Refuse {
			return fmt.Errorf("%w: reserve needs overflow, which %v does not have there", backends.ErrUnsupported, l.Algorithm())
		}
	}
	return nil
}

// checkPlain returns an error if envoyproxy/ratelimit has no counter for r.
func checkPlain(r *descriptors.Rule, caps *backends.Caps) error {
	var what string
	switch {
	case r.Resource != "":
		what = "rules by method and path"
	case r.Raw():
		what = "counter: value"
	case len(r.Limits) > 1:
		what = "several limits in one rule"
	case r.Choose != "":
		what = "choose"
	default:
		return nil
	}
	return fmt.Errorf("%w: it counts in the counters of envoyproxy/ratelimit, which has none for %s: "+
		"leave them out as long as both decide, or leave out %s",
		backends.ErrUnsupported, what, caps.Variant)
}

// candidates are the first rules of each choice.
type candidates map[ruleLabel]*descriptors.Rule

// check returns an error if the backend cannot choose between r and the first rule of its choice in one step.
func (c candidates) check(r *descriptors.Rule, caps *backends.Caps) error {
	label := ruleLabel{r.Domain, r.Choose}
	first := c[label]
	if first == nil {
		c[label], first = r, r
	}
	if first.Keys == r.Keys || caps.Atomicity == backends.Whole {
		return nil
	}
	file, line := first.Place()
	return fmt.Errorf("%w: it can choose only between descriptors that differ in their last value alone; the rule that "+
		"also chooses %q, %s (%s:%d), has other keys", backends.ErrUnsupported, r.Choose, first.Path, file, line)
}

// A sharedLimit is the first limit that counts in a log which other limits share.
type sharedLimit struct {
	limit *limit.Limit
	rule  *descriptors.Rule
}

// check returns an error if the backend cannot keep the limits of r, a rule with
// counter: value. Limits of different rules share the counter of a value, so they
// must agree; two limits of one rule would charge each request twice.
func (f *sharedLimit) check(r *descriptors.Rule, caps *backends.Caps) error {
	n := 0
	for i := range r.Limits {
		l := r.Limits[i].Limit
		if !caps.Shared(l) {
			continue
		}
		if n++; n > 1 {
			return fmt.Errorf("%w: it keeps one log per value of counter: value, so a rule may have only one limit with %v",
				backends.ErrUnsupported, l.Algorithm())
		}
		if f.limit == nil {
			f.limit, f.rule = l, r
		}
		if err := caps.CheckShared(l, f.limit); err != nil {
			file, line := f.rule.Place()
			return fmt.Errorf("%w; the other limit is in %s/%s (%s:%d)", err, f.rule.Domain, f.rule.Path, file, line)
		}
	}
	return nil
}
