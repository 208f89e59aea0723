package ratelimit

import (
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// A decision is all that is known of one descriptor of a call, and is made once: match and addOps write what the
// rules say, conclude what the verdict says. Sinks read it.
type decision struct {
	entries  []descriptors.Entry
	match    descriptors.Match
	view     *ruleView    // nil if no rule applies
	policies *policyViews // of the rule, nil if it has none
	cost     int64        // of each of its ops
	first, n int          // its ops in call.ops

	status *Status       // in the response
	limit  *limitView    // that decided; nil if none did
	tier   *tierView     // that applies, of a limit on requests in flight
	wait   time.Duration // how long to wait if limit refuses: limit.Never if no wait helps
	at     int           // the op in call.ops that decided, if counted

	decider   int32 // which of policies decides, as policyViews.view says
	unlimited bool
	returns   bool // a lease came back with it, which is nothing to decide about
	reports   bool // what a request has cost that reserved units: noteReport answers it
	counted   bool // counters decided, in the store or in this process
	outcome   Outcome
	// policy answers instead of the counters, unless it is zero; cause is then why. It is also set where
	// the counters could not be asked now, and have refused before.
	policy descriptors.FailurePolicy
	cause  *cause
}

// outweighs reports whether d refuses a request rather than another decision: there is no other, or d's wait is
// longer.
func (d *decision) outweighs(other *decision) bool {
	return other == nil || (other.wait != limit.Never && (d.wait == limit.Never || d.wait > other.wait))
}

// conclude completes decision d by the call's verdict.
func (c *call) conclude(b *batch, d *decision) {
	st := d.status
	switch {
	case d.returns, d.reports:
	case d.view == nil:
		d.outcome = OutcomeNoRule
	case d.unlimited:
		d.outcome, st.Remaining = OutcomeUnlimited, maxRemaining
	case d.n == 0: // exempt, or every limit replaced
		d.outcome = OutcomeUnlimited
	case d.policy == descriptors.FailDeny:
		d.cause, d.outcome, d.limit, d.wait = c.cause, c.cause.outcomes[d.policy], c.views[d.first], time.Second
		st.OverLimit, st.limit, st.Reset = true, d.limit, 1
	case d.policy == descriptors.FailAllow, d.policy == descriptors.FailError:
		d.cause, d.outcome = c.cause, c.cause.outcomes[d.policy]
	default:
		c.concludeCounted(d, b.engine.conf.ShadowMode)
	}
}

// concludeCounted completes d by the outcome of its ops that matters most.
func (c *call) concludeCounted(d *decision, shadowMode bool) {
	at, shadowed := c.decisive(d)
	out, view := &c.verdict.Outcomes[at], c.views[at]
	wait := out.Reset
	if !out.Admitted && out.Retry != limit.Never {
		wait = out.Retry
	}
	st := d.status
	st.limit, st.Remaining, st.Reset = view, clampUint32(out.Remaining), units.CeilSeconds(wait)
	st.OverLimit = !out.Admitted && !view.shadow
	d.counted, d.at, d.limit, d.tier, d.wait = true, at, view, view.tier(out), out.Retry
	switch {
	case !out.Admitted && !st.OverLimit, shadowed && out.Admitted, st.OverLimit && shadowMode:
		d.outcome = OutcomeShadow
	case st.OverLimit:
		d.outcome = OutcomeOverLimit
		if c.verdict.Recalled {
			d.cause = recalled
		}
	default:
		d.outcome = OutcomeOK
	}
}

// decisive returns the index of the op whose limit the status of d shows: of the limits that refuse, the one with
// the longest wait; else the one with the least left. It is a shadow limit only if d has no others. shadowed says
// whether a shadow limit would have refused.
func (c *call) decisive(d *decision) (best int, shadowed bool) {
	best = -1
	for at := d.first; at < d.first+d.n; at++ {
		if c.views[at].shadow && !c.verdict.Outcomes[at].Admitted {
			shadowed = true
		}
		if best < 0 || c.outranks(at, best) {
			best = at
		}
	}
	return best, shadowed
}

func (c *call) outranks(a, b int) bool {
	x, y := &c.verdict.Outcomes[a], &c.verdict.Outcomes[b]
	switch {
	case c.views[a].shadow != c.views[b].shadow:
		return c.views[b].shadow
	case x.Admitted != y.Admitted:
		return !x.Admitted
	case !x.Admitted:
		return y.Retry != limit.Never && (x.Retry == limit.Never || x.Retry > y.Retry)
	}
	return x.Remaining < y.Remaining
}
