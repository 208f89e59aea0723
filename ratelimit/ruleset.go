package ratelimit

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// A ruleset is a set of rules with what their answers need made beforehand.
type ruleset struct {
	set   *descriptors.Set
	views []ruleView // by descriptors.Rule.ID

	longest time.Duration // life of a lease
}

// A ruleView is a rule as answers see it.
type ruleView struct {
	rule                *descriptors.Rule
	limits              []limitView
	each                bool
	onError, onOverload descriptors.FailurePolicy
	quota               bool
	meta                []byte // encoded metadata of the rule, nil if it has none

	once     sync.Once
	counters *RuleCounters
}

// A limitView is one limit of a rule as answers see it.
type limitView struct {
	limit   *limit.Limit
	label   string // the operator's name for it, possibly empty
	name    string // in messages: "domain/path" or "domain/path:label"
	keyPart string
	shadow  bool
	current []byte // encoded RateLimit
	refused []byte // encoded metadata of a refusal
	share   int64  // units that a replica takes ahead

	refusals Counter // requests that this limit refused

	// What there is only for requests in flight.
	inFlight *descriptors.Concurrency
	tiers    []tierView
	domain   string // the rule's
	rule     string // the rule's path
	leases   *LeaseCounters
}

func newRuleset(set *descriptors.Set, conf *Config) *ruleset {
	rs := &ruleset{set: set, views: make([]ruleView, len(set.Rules()))}
	for _, r := range set.Rules() {
		v := &rs.views[r.ID]
		v.rule = r
		v.quota = r.Quota || conf.QuotaMode
		if r.Metadata != nil {
			v.meta = encodeMetadata(map[string]any{"metadata": r.Metadata})
		}
		charge := r.Charge
		if charge == descriptors.ChargeDefault {
			charge = conf.Charge
		}
		v.each = charge == descriptors.ChargeEach
		if v.onError = r.OnBackendError; v.onError == descriptors.FailDefault {
			v.onError = conf.OnBackendError
		}
		if v.onOverload = r.OnOverload; v.onOverload == descriptors.FailDefault {
			v.onOverload = conf.OnOverload
		}
		v.limits = make([]limitView, len(r.Limits))
		for i := range r.Limits {
			v.limits[i] = newLimitView(r, &r.Limits[i], conf)
		}
		if r.Concurrency != nil {
			v.limits = append(v.limits, newInFlightView(r, conf))
			rs.longest = max(rs.longest, r.Concurrency.LeaseTTL)
		}
		for i, l := range LimitLabels(r) {
			v.limits[i].refusals = conf.Metrics.Refusals(r.Domain, r.Path, l.Name)
		}
	}
	return rs
}

func newLimitView(r *descriptors.Rule, rl *descriptors.RuleLimit, conf *Config) limitView {
	name := r.Domain + "/" + r.Path
	if rl.Name != "" {
		name += ":" + rl.Name
	}
	return limitView{
		limit:   rl.Limit,
		label:   rl.Name,
		name:    name,
		keyPart: rl.KeyPart,
		shadow:  rl.Shadow || r.Shadow,
		share:   rl.Share,
		current: encodeCurrentLimit(rl.Name, rl.Limit, conf.UnitMultipliers),
		refused: encodeMetadata(map[string]any{"rule": name}),
	}
}

func newInFlightView(r *descriptors.Rule, conf *Config) limitView {
	c := r.Concurrency
	lv := newLimitView(r, &descriptors.RuleLimit{Limit: c.Limit, KeyPart: c.KeyPart}, conf)
	lv.inFlight, lv.domain, lv.rule = c, r.Domain, r.Path
	lv.tiers = newTierViews(r, lv.name, conf.Metrics)
	lv.leases = conf.Metrics.Lease(r.Domain, r.Path)
	return lv
}

// count adds a decision under the rule to the metrics. The counters are looked
// up once per rule, unless the label depends on the request.
func (v *ruleView) count(s *Service, set *descriptors.Set, d *Descriptor, o Outcome) {
	if v.rule.Metric.Detailed || v.rule.Metric.ValueAt != nil {
		s.conf.Metrics.Values(v.rule.Domain, v.rule.Path, set.MetricLabel(v.rule, d.Entries))[o].Inc()
		return
	}
	v.once.Do(func() { v.counters = s.conf.Metrics.Rule(v.rule.Domain, v.rule.Path) })
	v.counters[o].Inc()
}

// encodeMetadata encodes m as a google.protobuf.Struct. What cannot be a
// Struct (the rule loader lets none through) is left out.
func encodeMetadata(m map[string]any) []byte {
	st, err := structpb.NewStruct(m)
	if err != nil {
		return nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(st)
	if err != nil {
		return nil
	}
	return b
}

// An overrideCache keeps compiled limits that callers brought along. It is
// bounded by starting afresh.
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
	v := &ruleView{rule: r, each: conf.Charge == descriptors.ChargeEach, onError: conf.OnBackendError, onOverload: conf.OnOverload, quota: conf.QuotaMode}
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
