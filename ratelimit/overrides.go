package ratelimit

import (
	"sync"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// An overrideCache keeps the compiled limits of overrides. When it is full, it is
// emptied.
type overrideCache struct {
	mu    sync.Mutex
	views map[overrideKey]*ruleView
}

// An overrideKey is an override of a rule, nil where no rule applies.
type overrideKey struct {
	Override
	rule *ruleView
}

const maxOverrides = 4096

// forget drops all views, which keep the rules that they override in memory.
func (c *overrideCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.views = nil
}

// get returns a view for o in the place of rule, which is nil where none applies, under the
// failure policy and charge of conf.
func (c *overrideCache) get(o Override, rule *ruleView, conf *Config) (*ruleView, error) {
	key := overrideKey{o, rule}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.views[key]; ok {
		return v, nil
	}
	v, err := newOverrideView(o, conf)
	if err != nil {
		return nil, err
	}
	if c.views == nil || len(c.views) >= maxOverrides {
		c.views = make(map[overrideKey]*ruleView)
	}
	if rule != nil {
		v.inPlaceOf(rule)
	}
	c.views[key] = v
	return v, nil
}

// inPlaceOf puts an override into shadow mode if the rule is. If the rule has a fixed window of
// the same length, the two have one counter, as in the reference: what was counted by the rule
// counts when a request brings its own limit, and the other way round.
func (v *ruleView) inPlaceOf(rule *ruleView) {
	own := &v.limits[0]
	own.Shadow, v.keys, v.life = own.Shadow || rule.rule.Shadow, rule.keys, v.countersLife()
	for i := range rule.limits {
		l := &rule.limits[i]
		if l.Limit.Algorithm() == limit.FixedWindow && l.Limit.Window() == own.Limit.Window() {
			own.keyPart, own.Shadow, v.sharesCounter = l.keyPart, own.Shadow || l.Shadow, true
			own.Limit = sameWindows(own.Limit, l.Limit)
			return
		}
	}
}

// sameWindows returns l, whose window is as long as that of another limit, with the
// same windows: those of the calendar, or not.
func sameWindows(l, other *limit.Limit) *limit.Limit {
	s, o := l.Spec(), other.Spec()
	if s.Calendar, s.Zone = o.Calendar, o.Zone; s.Calendar && s.Overflow == limit.Debt {
		s.Overflow, s.MaxDebt = limit.Saturate, 0 // a calendar has no debt
	}
	if with, err := limit.New(s); err == nil {
		return with
	}
	return l
}

func newOverrideView(o Override, conf *Config) (*ruleView, error) {
	window := o.Unit.Length() * time.Duration(max(o.Multiplier, 1))
	if o.Multiplier > 1 && window/time.Duration(o.Multiplier) != o.Unit.Length() {
		window = limit.MaxWindow + 1 // overflow; New says what the bound is
	}
	spec := limit.Spec{Algorithm: limit.FixedWindow, Max: int64(o.RequestsPerUnit), Window: window}
	spec.Calendar = conf.CalendarMonths && window == units.Month && o.Multiplier <= 1
	l, err := limit.New(spec)
	if err != nil {
		return nil, err
	}
	if err := conf.Caps.Check(l); err != nil {
		return nil, err
	}
	l = overflowDefaults{}.get(overflowOf{Limit: l}, conf)
	r := &descriptors.Rule{Path: "override"}
	v := &ruleView{rule: r, each: conf.Charge == descriptors.ChargeEach, onError: conf.OnBackendError,
		onOverload: conf.OnOverload, quota: conf.QuotaMode, override: true}
	v.limits = []LimitView{newLimitView(r, &descriptors.RuleLimit{
		Limit: l,
		// The window is part of the key, as the reference has it: callers may
		// bring different limits for the same descriptor.
		KeyPart: "o:" + window.String(),
	}, conf)}
	v.limits[0].Name = "override"
	v.limits[0].refused = conf.Encoder.AppendText(nil, "rule", "override")
	v.series = conf.Metrics.override()
	v.count()
	return v, nil
}
