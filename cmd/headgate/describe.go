package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// describe writes what the figures of rules mean that few have: for each limit with a
// local_share how far it can be off on account of it, and for each rule with reserve what its
// requests reserve, and what can be spent beyond its budget.
func describe(w io.Writer, set *descriptors.Set) {
	for _, r := range set.Rules() {
		if len(r.By) > 0 {
			fmt.Fprintf(w, "%s/%s: each %s has its own counter; requests without a value count together\n", r.Domain, r.Path,
				strings.Join(r.By, " and "))
		}
		if r.Reserve != nil {
			fmt.Fprintf(w, "%s/%s: %s\n", r.Domain, r.Path, describeReserve(r))
		}
		for i := range r.Limits {
			if l := &r.Limits[i]; l.Limit.TakesAhead() {
				fmt.Fprintf(w, "%s/%s: %s\n", r.Domain, r.Path, describeShare(l))
			}
		}
	}
}

// describeShare says in words what local_share costs in exactness.
func describeShare(l *descriptors.RuleLimit) string {
	share, what := l.Limit.Share(), "limit"
	if l.Name != "" {
		what += " " + l.Name
	}
	held := fmt.Sprintf("%s, local_share %d: up to %d × replicas of %d may be refused too early", what, share, share-1,
		l.Limit.Capacity())
	if share == limit.AutoShare {
		part := l.Limit.Capacity() / 100
		if part < 2 {
			return fmt.Sprintf("%s, local_share auto: nothing is taken ahead of a limit below 200", what)
		}
		held = fmt.Sprintf("%s, local_share auto: up to %d of %d may be refused too early, 1 %% of what is left,", what, part,
			l.Limit.Capacity())
	}
	span := units.Format(l.Limit.Window())
	switch {
	case l.Limit.Is(limit.Isolated):
		return fmt.Sprintf("%s in each window of %s; never more than %d pass", held, span, l.Limit.Max())
	case l.Limit.Is(limit.Refilled):
		return fmt.Sprintf("%s, and as many may pass beyond rate and burst", held)
	}
	return fmt.Sprintf("%s, and as many may pass beyond the limit in %s", held, span)
}

// describeReserve says in words what requests under r reserve, and what the budget's bound is.
func describeReserve(r *descriptors.Rule) string {
	v, least := r.Reserve, int64(0)
	var of []string
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Reserved {
			of = append(of, descriptors.LimitText(l.Limit))
			if least == 0 || l.Limit.Capacity() < least {
				least = l.Limit.Capacity()
			}
		}
	}
	what := map[descriptors.Reserving]string{
		descriptors.ReserveFixed: fmt.Sprintf("reserve %d units", v.Default),
		descriptors.ReserveEstimate: fmt.Sprintf("reserve what they estimate, at most %d, and %d without an estimate",
			v.Max, v.Default),
		descriptors.ReserveAuto: fmt.Sprintf("reserve what requests of the key cost of late, at most what they estimate "+
			"and %d, at least %d, and %d at first", v.Max, v.Min, v.Default),
	}[v.By]
	lost := "a request whose end is lost counts as if it had cost what it reserved"
	if v.OnLost == descriptors.EndFree {
		lost = fmt.Sprintf("a request whose end is lost gives back what it reserved, after %s at the latest; its cost is "+
			"then beyond the budget", units.Format(v.TTL+descriptors.ReserveGrace))
	}
	return fmt.Sprintf("requests %s of %s; %s; %s", what, strings.Join(of, " and "), describeBounds(v, least), lost)
}

// describeBounds says in words what is spent beyond a budget, whose smallest limit has so many units: by amount: auto
// also of a client that makes cheap requests first, to begin many expensive ones at once.
func describeBounds(v *descriptors.Reserve, least int64) string {
	first := fmt.Sprintf("of a new key at most %d requests begin at once", least/v.Default)
	const beyond = "beyond the budget is spent at most what requests in flight cost more than they reserved"
	switch v.By {
	case descriptors.ReserveEstimate:
		return first + "; never more than the budget is spent if the estimate is no less than the cost and no more than " +
			"max; else beyond it what requests in flight cost more than they reserved"
	case descriptors.ReserveAuto:
		return fmt.Sprintf("a client that cooperates: %s; %s; one that does not: at most %d requests are open at once, "+
			"which spend at most %[3]d × %d units if none costs more than max", first, beyond, least/v.Min, v.Max)
	}
	return first + "; " + beyond
}
