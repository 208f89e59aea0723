package ratelimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// degrade decides a call that the backend could not decide: each rule that
// applies answers by its policy. It returns a verdict with an outcome for each op;
// only outcomes of decisions with FailLocal are meaningful.
func (c *Call) degrade(ctx context.Context, b *Batch, err error) *limit.Verdict {
	var policy func(*ruleView) descriptors.FailurePolicy
	c.Response.Degraded = true
	switch {
	case errors.Is(err, backends.ErrLater):
		c.cause, policy = laterFormat, b.engine.onLater
	case errors.Is(err, backends.ErrOverloaded):
		c.cause, policy = overloaded, overloaded.policy
	default:
		c.cause, policy = backendFailed, backendFailed.policy
	}
	strictest := descriptors.FailAllow
	for i := range c.Decisions {
		p := &c.Decisions[i]
		if p.view == nil || p.n == 0 {
			continue
		}
		p.policy = policy(p.view)
		if p.policy != descriptors.FailLocal && !c.enforcing(b, p) {
			p.policy = descriptors.FailAllow
		}
	}
	for n := range c.choices {
		c.favour(&c.choices[n])
	}
	for i := range c.Decisions {
		if p := &c.Decisions[i]; p.policy != descriptors.FailDefault {
			strictest = stricter(strictest, p.policy)
			c.Response.Uncounted = c.Response.Uncounted || p.policy != descriptors.FailLocal
		}
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // else nobody is waiting
		b.engine.conf.Metrics.answered(c.cause.Label, strictest.String())
		b.engine.logFailure(c.Request, c.cause.message+strictest.String(), err)
	}
	c.strictest = strictest
	refused := strictest == descriptors.FailDeny || strictest == descriptors.FailError
	v := c.takeLocal(ctx, b, refused)
	if strictest == descriptors.FailError {
		c.failure = &Error{Code: codeUnavailable, Message: fmt.Sprintf("not decided: %v", err)}
	}
	return v
}

// enforcing reports whether a limit of p can refuse.
func (c *Call) enforcing(b *Batch, p *Decision) bool {
	for at := p.First; at < p.First+p.n; at++ {
		if !c.views[at].Shadow {
			return !b.engine.conf.ShadowMode
		}
	}
	return false
}

// takeLocal decides the descriptors with FailLocal in this process's memory, unless
// the request is refused anyway: then it must not be charged.
func (c *Call) takeLocal(ctx context.Context, b *Batch, refused bool) *limit.Verdict {
	full := &limit.Verdict{Outcomes: make([]limit.Outcome, len(c.Ops))}
	req := limit.Request{At: b.engine.conf.Now()}
	var at []int
	for i := range c.Decisions {
		p := &c.Decisions[i]
		if p.policy != descriptors.FailLocal {
			continue
		}
		if refused {
			p.policy = descriptors.FailAllow
			continue
		}
		for j := p.First; j < p.First+p.n; j++ {
			op := c.Ops[j]
			op.Shadow = op.Shadow || b.engine.conf.ShadowMode
			at, req.Ops = append(at, j), append(req.Ops, op)
		}
	}
	if len(at) == 0 {
		return full
	}
	out := make([]limit.Verdict, 1)
	b.engine.conf.Local.Take(ctx, []limit.Request{req}, out)
	if full.Err = out[0].Err; full.Err != nil {
		b.engine.logFailure(c.Request, "local fallback failed", full.Err)
		c.Response.Uncounted = true
		c.localFailed(b)
		return full
	}
	for k, j := range at {
		full.Outcomes[j] = out[0].Outcomes[k]
	}
	full.Admitted, full.At = out[0].Admitted, out[0].At
	return full
}

// localFailed answers the descriptors with FailLocal by the service's policy.
func (c *Call) localFailed(b *Batch) {
	policy := b.engine.conf.OnBackendError
	if policy == descriptors.FailLocal {
		policy = descriptors.FailAllow
	}
	for i := range c.Decisions {
		p := &c.Decisions[i]
		if p.policy != descriptors.FailLocal {
			continue
		}
		if p.policy = policy; !c.enforcing(b, p) {
			p.policy = descriptors.FailAllow
		}
		if p.policy == descriptors.FailError {
			c.failure = &Error{Code: codeUnavailable, Message: "not decided: neither the backend nor the local fallback answers"}
		}
	}
}

// A Cause is why a policy answers and not the counters.
type Cause struct {
	Label    string // in metrics
	message  string // in logs
	policy   func(*ruleView) descriptors.FailurePolicy
	outcomes map[descriptors.FailurePolicy]Outcome
	note     string // in a response's dynamic_metadata: the key whose value is the policy
}

var (
	backendFailed = &Cause{
		Label: "backend_error", message: "backend failed, answered by policy ",
		policy: func(v *ruleView) descriptors.FailurePolicy { return v.onError },
		outcomes: map[descriptors.FailurePolicy]Outcome{
			descriptors.FailAllow: OutcomeFailedOpen, descriptors.FailDeny: OutcomeFailedClosed,
			descriptors.FailError: OutcomeFailedError,
		},
		note: "degraded",
	}
	overloaded = &Cause{
		Label: "overload", message: "more requests than the backend can be asked about, answered by policy ",
		policy: func(v *ruleView) descriptors.FailurePolicy { return v.onOverload },
		outcomes: map[descriptors.FailurePolicy]Outcome{
			descriptors.FailAllow: OutcomeOverload, descriptors.FailDeny: OutcomeOverload,
			descriptors.FailError: OutcomeOverload,
		},
		note: "overloaded",
	}
	// recalled: the store could not be asked, and had refused the same until later than now. No policy answers.
	recalled = &Cause{Label: "recalled", note: "recalled"}
)

// strictness orders the policies. The last one among a request's rules decides
// about the whole request. Deny comes after error, because a proxy may admit a
// request after an error.
var strictness = []descriptors.FailurePolicy{
	descriptors.FailAllow, descriptors.FailLocal, descriptors.FailError, descriptors.FailDeny,
}

func stricter(a, b descriptors.FailurePolicy) descriptors.FailurePolicy {
	for _, p := range strictness {
		if p == a {
			return b
		}
		if p == b {
			return a
		}
	}
	return a
}

// degradedLabels returns the causes of answers by policy, and the policies that
// each can be answered by.
func degradedLabels() map[string][]string {
	return map[string][]string{
		backendFailed.Label: {"allow", "deny", "error", "local"},
		laterFormat.Label:   {"allow", "deny", "error", "local"},
		overloaded.Label:    {"allow", "deny", "error"},
	}
}
