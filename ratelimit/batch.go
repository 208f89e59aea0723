package ratelimit

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// start matches every request and collects the requests to the backend.
func (b *batch) start(engine *engine, reqs []*Request, resps []*Response) {
	b.engine, b.rules = engine, engine.rules.Load()
	if engine.conf.Policies != nil {
		b.policies = engine.conf.Policies.Snapshot()
	}
	b.calls = grow(b.calls, len(reqs))
	b.takes, b.returns = b.takes[:0], false
	for i := range reqs {
		c := &b.calls[i]
		c.req, c.resp, c.takeIndex, c.holder = reqs[i], resps[i], -1, ""
		c.cause, c.failure = nil, nil
		c.ops, c.views, c.returns = c.ops[:0], c.views[:0], c.returns[:0]
		c.resp.reset(len(c.req.Descriptors))
		if p := reqs[i].proxy(); i == 0 || p != reqs[i-1].proxy() {
			engine.leases.HeardFrom(p)
		}
		if c.resp.Err = c.plan(b); c.resp.Err != nil {
			continue
		}
		c.addReturns(b)
		if len(c.ops) > 0 {
			c.takeIndex = len(b.takes)
			b.takes = append(b.takes, limit.Request{Ops: c.ops})
		}
	}
	b.verdicts = grow(b.verdicts, len(b.takes))
	if engine.conf.Tracer != nil {
		b.times.planned = time.Now()
	}
	if !engine.conf.Caps.ServerClock && len(b.takes) > 0 {
		now := engine.conf.Now()
		for i := range b.takes {
			b.takes[i].At = now
		}
	}
}

// release drops what a pooled batch must not keep in memory.
func (b *batch) release() {
	for i := range b.calls {
		c := &b.calls[i]
		if i >= keptLarge && c.req.size > smallMessage {
			*c = call{}
			continue
		}
		c.req, c.resp = nil, nil
		clear(c.parts)
		clear(c.ops)
		clear(c.views)
		clear(c.lease.Held)
		for j := range c.returns {
			c.returns[j].Clear()
		}
	}
	clear(b.takes)
	b.engine, b.rules, b.policies = nil, nil, nil
}
