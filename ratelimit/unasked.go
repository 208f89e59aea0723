package ratelimit

import (
	"fmt"
	"sync/atomic"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A rule whose gateway asks and reports in another way than its reserve says reserves nothing, and its budget holds as
// if it had no reserve. Nothing else would say so.

// A reserveUse is what calls under a rule with reserve have done since one of them has reserved something last.
type reserveUse struct {
	missed atomic.Int64 // calls
	why    atomic.Pointer[string]
}

// unasksBefore is after how many calls in a row that reserve nothing a rule is said to reserve nothing.
const unasksBefore = 10

// asked notes that a call reserves.
func (u *reserveUse) asked() {
	if u.missed.Load() != 0 {
		u.missed.Store(0)
	}
}

// miss notes that a call reserves nothing, or that nothing was reserved for a report, and logs the tenth in a row.
func (e *engine) miss(v *ruleView, why func() string) {
	u := v.reserve.use
	n := u.missed.Add(1)
	if n != unasksBefore {
		return
	}
	text := why()
	u.why.Store(&text)
	e.conf.Log.Warn("a rule with reserve reserves nothing", "domain", v.rule.Domain, "rule", v.rule.Path, "calls", n,
		"why", text)
}

// noteUnasked notes that a descriptor under a rule with reserve is charged.
func (e *engine) noteUnasked(req *Request, d *Descriptor, v *ruleView) {
	if d.Refund || req.InProcess {
		return
	}
	e.conf.Metrics.Reservation(v.rule.Domain, v.rule.Path).At(int(leases.Unasked)).Inc()
	e.miss(v, func() string { return unasked(req, d, v.reserve.Reserve) })
}

// unasked says why a descriptor does not reserve.
func unasked(req *Request, d *Descriptor, r *descriptors.Reserve) string {
	switch {
	case r.Match == descriptors.MatchToken && req.Purpose != ByHits:
		return "the calls only ask or report; with match: oldest questions reserve, and reports settle that"
	case r.Match == descriptors.MatchToken:
		return fmt.Sprintf("the descriptors come with hits (%d), and with match: token only those without hits reserve; "+
			"match: oldest is for gateways that ask and report by the same descriptor", max(d.Hits, uint64(req.Hits)))
	}
	return "the descriptors come without hits, and with ask: zero only those with 0 hits reserve; ask: one is for " +
		"gateways that ask so"
}

// noteUnreserved notes that nothing was reserved for a report.
func (e *engine) noteUnreserved(v *ruleView) {
	if v.reserve.Ask == descriptors.AskZero {
		e.miss(v, func() string {
			return "costs are reported, and nothing asks before them with 0 hits; if the gateway asks with hits, see ask"
		})
		return
	}
	e.miss(v, func() string { return "costs are reported, and nothing asks before them as the rule's ask says" })
}

// A NeverReserving is a rule with reserve under which the last calls have reserved nothing.
type NeverReserving struct {
	Domain, Rule string
	Calls        int64
	Why          string
}

// NeverReserving lists the rules with reserve whose last calls have reserved nothing, ten at least.
func (s *Service) NeverReserving() (list []NeverReserving) {
	rules := s.rules.Load()
	for _, r := range rules.set.Rules() {
		v := rules.views[r.ID]
		if v == nil || v.reserve == nil {
			continue
		}
		why, n := v.reserve.use.why.Load(), v.reserve.use.missed.Load()
		if n >= unasksBefore && why != nil {
			list = append(list, NeverReserving{r.Domain, r.Path, n, *why})
		}
	}
	return list
}
