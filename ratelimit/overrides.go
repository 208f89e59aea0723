package ratelimit

import (
	"sync"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// An overrideCache keeps the compiled limits of overrides. When it is full, it is
// emptied.
type overrideCache struct {
	mu    sync.Mutex
	views map[Override]*ruleView
}

const maxOverrides = 4096

// get returns a view for o under the failure policy and charge of conf.
func (c *overrideCache) get(o Override, conf *Config) (*ruleView, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.views[o]; ok {
		return v, nil
	}
	v, err := newOverrideView(o, conf)
	if err != nil {
		return nil, err
	}
	if c.views == nil || len(c.views) >= maxOverrides {
		c.views = make(map[Override]*ruleView)
	}
	c.views[o] = v
	return v, nil
}

func newOverrideView(o Override, conf *Config) (*ruleView, error) {
	window := o.Unit.Length() * time.Duration(max(o.Multiplier, 1))
	if o.Multiplier > 1 && window/time.Duration(o.Multiplier) != o.Unit.Length() {
		window = limit.MaxWindow + 1 // overflow; New says what the bound is
	}
	l, err := limit.New(limit.Spec{Algorithm: limit.FixedWindow, Max: int64(o.RequestsPerUnit), Window: window})
	if err != nil {
		return nil, err
	}
	if err := conf.Caps.Check(l); err != nil {
		return nil, err
	}
	r := &descriptors.Rule{Path: "override"}
	v := &ruleView{rule: r, each: conf.Charge == descriptors.ChargeEach, onError: conf.OnBackendError, onOverload: conf.OnOverload, quota: conf.QuotaMode, override: true}
	v.limits = []limitView{newLimitView(r, &descriptors.RuleLimit{
		Limit: l,
		// The window is part of the key, as the reference has it: callers may
		// bring different limits for the same descriptor.
		KeyPart: "o:" + window.String(),
	}, conf)}
	v.limits[0].name = "override"
	v.limits[0].refusals = conf.Metrics.Refusals("", "override", "override")
	v.limits[0].refused = encodeMetadata(map[string]any{"rule": "override"})
	v.once.Do(func() { v.counters = conf.Metrics.Rule("", "override") })
	return v, nil
}
