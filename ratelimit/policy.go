package ratelimit

import (
	"context"
	"errors"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// degrade decides a call that the backend could not decide: every rule that
// applies answers by its failure policy. It returns a verdict with an outcome
// per op, of which those of FailLocal parts are real ones.
func (c *call) degrade(ctx context.Context, b *batch, err error) *limit.Verdict {
	c.resp.Degraded = true
	strictest := descriptors.FailAllow
	for i := range c.parts {
		p := &c.parts[i]
		if p.view == nil || p.n == 0 {
			continue
		}
		p.policy = p.view.onError
		if p.policy == descriptors.FailDeny && !c.enforcing(b, p) {
			p.policy = descriptors.FailAllow
		}
		if p.policy == descriptors.FailDeny || strictest == descriptors.FailAllow {
			strictest = p.policy
		}
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // else nobody is waiting
		b.s.conf.Metrics.Degraded(strictest.String())
		b.s.logFailure(c.req.Domain, "backend failed, answered by policy "+strictest.String(), err)
	}
	c.resp.metadata = append(c.resp.metadata, degradedMetadata[strictest])
	return c.takeLocal(ctx, b, strictest == descriptors.FailDeny)
}

// enforcing says whether some limit of p can refuse.
func (c *call) enforcing(b *batch, p *part) bool {
	for at := p.first; at < p.first+p.n; at++ {
		if !c.views[at].shadow {
			return !b.s.conf.ShadowMode
		}
	}
	return false
}

// takeLocal decides the parts with FailLocal on this process's memory, unless
// the request is denied anyway and must not be charged.
func (c *call) takeLocal(ctx context.Context, b *batch, denied bool) *limit.Verdict {
	full := &limit.Verdict{Outcomes: make([]limit.Outcome, len(c.ops))}
	req := limit.Request{At: b.s.conf.Now()}
	var at []int
	for i := range c.parts {
		p := &c.parts[i]
		if p.policy != descriptors.FailLocal {
			continue
		}
		if denied {
			p.policy = descriptors.FailAllow
			continue
		}
		for j := p.first; j < p.first+p.n; j++ {
			at, req.Ops = append(at, j), append(req.Ops, c.ops[j])
		}
	}
	if len(at) == 0 {
		return full
	}
	out := make([]limit.Verdict, 1)
	b.s.conf.Local.Take(ctx, []limit.Request{req}, out)
	if full.Err = out[0].Err; full.Err != nil {
		b.s.logFailure(c.req.Domain, "local fallback failed", full.Err)
		for i := range c.parts {
			if p := &c.parts[i]; p.policy == descriptors.FailLocal {
				p.policy = b.s.conf.OnBackendError
				if p.policy == descriptors.FailLocal {
					p.policy = descriptors.FailAllow
				}
			}
		}
		return full
	}
	for k, j := range at {
		full.Outcomes[j] = out[0].Outcomes[k]
	}
	full.Admitted = out[0].Admitted
	return full
}

// degradedMetadata is what a response's dynamic_metadata says when a failure
// policy answered.
var degradedMetadata = map[descriptors.FailurePolicy][]byte{
	descriptors.FailAllow: encodeMetadata(map[string]any{"degraded": "allow"}),
	descriptors.FailDeny:  encodeMetadata(map[string]any{"degraded": "deny"}),
	descriptors.FailLocal: encodeMetadata(map[string]any{"degraded": "local"}),
}

// logFailure logs a failing backend, sampled.
func (s *Service) logFailure(domain, what string, err error) {
	if ok, skipped := s.failures.allow(); ok {
		s.conf.Log.Error(what, "domain", domain, "error", err, "not_logged", skipped)
	}
}
