package ratelimit

import (
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// A Decision is all that is known of one descriptor of a call, and is made once: match and addOps write what the
// rules say, conclude what the verdict says. Sinks read it.
type Decision struct {
	Entries  []descriptors.Entry
	match    descriptors.Match
	view     *ruleView    // nil if no rule applies
	policies *policyViews // of the rule, nil if the rule has no policies
	Cost     int64        // of each of its ops
	First, n int          // its ops in call.ops
	keeps    int          // the op in call.ops that keeps what it reserves; 0: none

	status *Status       // in the response
	Limit  *LimitView    // that decided; nil if none did
	Left   int64         // of its units
	Tier   *TierView     // that applies, of a limit on requests in flight
	Near   *LimitView    // the first of its limits that is nearly used up; nil if none is
	Wait   time.Duration // how long to wait if limit refuses: limit.Never if no wait helps
	At     int           // the op in call.ops that decided, if counted

	decider   int32 // which of policies decides, as policyViews.view says
	unlimited bool
	candidate bool // of a choice
	returns   bool // a lease came back with it, which is nothing to decide about
	reports   bool // what a request has cost that reserved units: noteReport answers it
	Counted   bool // counters decided, in the store or in this process
	Known     bool // this process had refused the key in this window before; only with Config.AsReference
	Outcome   Outcome
	// policy answers instead of the counters, unless it is zero; cause is then why. It is also set where
	// the counters could not be asked now, and have refused before.
	policy descriptors.FailurePolicy
	Cause  *Cause
}

// Rule returns the rule that applies, nil if none does. Of a limit that the request brings it has no domain.
func (d *Decision) Rule() *descriptors.Rule {
	if d.view == nil {
		return nil
	}
	return d.view.rule
}

// LacksDomain reports whether no rules have the domain of the descriptor.
func (d *Decision) LacksDomain() bool { return !d.match.Domain && !d.returns }

// Charges reports whether the descriptor takes units, or reports those that a request has used.
func (d *Decision) Charges() bool { return d.n > 0 || d.reports }

// outweighs reports whether d refuses a request rather than another decision: there is no other, or d's wait is
// longer.
func (d *Decision) outweighs(other *Decision) bool {
	return other == nil || (other.Wait != limit.Never && (d.Wait == limit.Never || d.Wait > other.Wait))
}

// conclude completes decision d by the call's verdict.
func (c *Call) conclude(b *Batch, d *Decision) {
	st := d.status
	switch {
	case d.returns, d.reports:
	case d.view == nil:
		d.Outcome = OutcomeNoRule
	case d.unlimited:
		d.Outcome, st.Remaining = OutcomeUnlimited, maxRemaining
	case d.n == 0: // exempt, or every limit replaced
		d.Outcome = OutcomeUnlimited
	case d.policy == descriptors.FailDeny:
		d.Cause, d.Outcome, d.Limit, d.Wait = c.cause, c.cause.outcomes[d.policy], c.views[d.First], time.Second
		st.OverLimit, st.limit, st.Reset = true, d.Limit, 1
	case d.policy == descriptors.FailAllow, d.policy == descriptors.FailError:
		d.Cause, d.Outcome = c.cause, c.cause.outcomes[d.policy]
	default:
		c.concludeCounted(d, b.engine)
	}
}

// concludeCounted completes d by the outcome of its ops that matters most.
func (c *Call) concludeCounted(d *Decision, e *engine) {
	at, shadowed := c.decisive(d)
	out, view := &c.Verdict.Outcomes[at], c.views[at]
	if e.refused != nil && !out.Admitted {
		d.Known = e.refused.knows(&c.Ops[at], out, c.Verdict.At)
	}
	wait := out.Reset
	if !out.Admitted && out.Retry != limit.Never {
		wait = out.Retry
	}
	st := d.status
	d.Left = max(out.Remaining, 0)
	st.limit, st.Remaining, st.Reset = view, scaled(d.Left, view.wide), ceilSeconds(wait)
	st.OverLimit = !out.Admitted && !view.Shadow
	d.Counted, d.At, d.Limit, d.Tier, d.Wait = true, at, view, view.tier(out), out.Retry
	if d.view.warns {
		d.Near = c.nearlyUsed(d)
	}
	switch {
	case !out.Admitted && !st.OverLimit, shadowed && out.Admitted, st.OverLimit && e.conf.ShadowMode:
		d.Outcome = OutcomeShadow
	case st.OverLimit:
		d.Outcome = OutcomeOverLimit
		if c.Verdict.Recalled {
			d.Cause = recalled
		}
	default:
		d.Outcome = OutcomeOK
	}
}

// decisive returns the index of the op whose limit the status of d shows: of the limits that refuse, the one with
// the longest wait; else the one with the least left. It is a shadow limit only if d has no others. shadowed says
// whether a shadow limit would have refused.
func (c *Call) decisive(d *Decision) (best int, shadowed bool) {
	best = -1
	for at := d.First; at < d.First+d.n; at++ {
		if c.views[at].Shadow && !c.Verdict.Outcomes[at].Admitted {
			shadowed = true
		}
		if best < 0 || c.outranks(at, best) {
			best = at
		}
	}
	if c.crowded(d) && c.outranks(d.keeps, best) {
		best = d.keeps
	}
	return best, shadowed
}

func (c *Call) outranks(a, b int) bool {
	x, y := &c.Verdict.Outcomes[a], &c.Verdict.Outcomes[b]
	switch {
	case c.views[a].Shadow != c.views[b].Shadow:
		return c.views[b].Shadow
	case x.Admitted != y.Admitted:
		return !x.Admitted
	case !x.Admitted:
		return y.Retry != limit.Never && (x.Retry == limit.Never || x.Retry > y.Retry)
	}
	return x.Remaining < y.Remaining
}
