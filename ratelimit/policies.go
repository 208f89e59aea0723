package ratelimit

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// policyViews finds the view of a rule whose limit a policy may take the place of.
type policyViews struct {
	own *ruleView
	// names are the keys of policies that are looked up after the request's own key, in this order.
	names  [][]byte
	series []atomic.Pointer[policySeries] // index: decider - decidedByRule
	cache  *policyCache
	conf   *Config
}

// newPolicyViews makes the views of a rule.
func newPolicyViews(own *ruleView, cache *policyCache, conf *Config) *policyViews {
	p := &policyViews{own: own, cache: cache, conf: conf}
	for _, name := range []string{own.limits[0].Name, own.rule.Domain + "/" + own.rule.Path} {
		// A name is no escaped text: a % in it stands for itself.
		if key, err := policies.KeyOf(name); err == nil && (len(p.names) == 0 || key != string(p.names[0])) {
			p.names = append(p.names, []byte(key))
		}
	}
	p.names = append(p.names, []byte(policies.Default))
	p.series = make([]atomic.Pointer[policySeries], len(p.names)-decidedByRule)
	return p
}

// A decider says which policy decides about a descriptor: an index of policyViews.names, or one of these.
const (
	decidedByRule = -2 // no policy: the rule's own limit
	decidedByKey  = -1 // the policy of the request's own key
)

// view returns the rule's view for entries: by the policy of their key, of the rule or of all, the
// first that exists; else the rule's own. It also returns the decider.
func (p *policyViews) view(s *policies.Snapshot, entries []descriptors.Entry) (v *ruleView, decider int) {
	if s.Len() == 0 {
		return p.own, decidedByRule
	}
	var buf [policies.MaxKey]byte
	f, ok := s.Find(p.own.rule.AppendPolicyKey(buf[:0], entries))
	decider = decidedByKey
	for i := 0; !ok && i < len(p.names); i++ {
		f, ok = s.Find(p.names[i])
		decider = i
	}
	if ok {
		if v = p.cache.get(p, f); v != p.own {
			return v, decider
		}
	}
	return p.own, decidedByRule
}

// countsIn returns the series for what decides entries under s.
func (p *policyViews) countsIn(s *policies.Snapshot, entries []descriptors.Entry, decider int) *policySeries {
	m, label, asked := p.conf.Metrics, p.own.series.byLabel, p.conf.PolicyMetrics
	if decider == decidedByKey && asked != nil {
		var buf [policies.MaxKey]byte
		if key := p.own.rule.AppendPolicyKey(buf[:0], entries); asked.Match(key) {
			return m.policy(label, key, ofOneKey, s)
		}
	}
	of := &p.series[decider-decidedByRule]
	if of.Load() == nil {
		all := slices.Concat([][]byte{[]byte(PolicyOfRule), []byte(PolicyOfKeys)}, p.names)
		of.Store(m.policy(label, all[decider-decidedByRule], ofMany, s))
	}
	return of.Load()
}

// UsesPolicy reports whether a rule in force looks a policy with a key up, for some request.
func (s *Service) UsesPolicy(key string) bool {
	for _, v := range s.rules.Load().views {
		if v == nil || v.policies == nil {
			continue
		}
		named := func(name []byte) bool { return string(name) == key }
		if v.rule.Policy.Makes(key) || slices.ContainsFunc(v.policies.names, named) {
			return true
		}
	}
	return false
}

// WhyNoPolicy says why no policy can take the place of the limit of the rule with this name, and what to do; "" if no
// rule in force has the name, or if one uses policies.
func (s *Service) WhyNoPolicy(name string) (why string) {
	for _, v := range s.rules.Load().views {
		if v == nil || !v.named(name) {
			continue
		}
		switch {
		case v.policies != nil:
			return ""
		case v.rule.Resource != "":
			why = "this rule is a resource, and policies take the place of limits of descriptors only; change it in the rules"
		case len(v.limits) != 1 || v.rule.Concurrency != nil:
			why = "this rule has no policy: field, and cannot have one: a policy takes the place of a rule's only limit"
		default:
			why = "this rule has no policy: field; add policy: KEY:{KEY} to it, with a key of its descriptor as KEY"
		}
	}
	return why
}

// named reports whether the key of a policy is the name of the rule, or of one of its limits, as answers have it.
func (v *ruleView) named(key string) bool {
	is := func(name string) bool {
		k, err := policies.KeyOf(name)
		return err == nil && k == key
	}
	return is(v.rule.Domain+"/"+v.rule.Path) || slices.ContainsFunc(v.limits, func(l LimitView) bool { return is(l.Name) })
}

// derive returns the rule's view with the limit of a policy; its own view if the backend cannot keep
// that limit. Counters stay the same while the algorithm does.
func (p *policyViews) derive(f policies.Figures) *ruleView {
	own := &p.own.limits[0]
	l, err := f.Limit()
	if err == nil {
		l = underOverflow(l, own.Limit, &p.conf.Caps)
		err = p.conf.Caps.Check(l)
	}
	if err != nil {
		if ok, skipped := p.cache.unusable.Allow(); ok {
			p.conf.Log.Error("the policy cannot be used; the rule's own limit holds", "rule", own.Name, "policy", f.Text(),
				"error", err, "suppressed", skipped)
		}
		return p.own
	}
	if own.Limit.Algorithm() == limit.FixedWindow && l.Algorithm() == limit.FixedWindow &&
		l.Window() == own.Limit.Window() {
		l = sameWindows(l, own.Limit)
	}
	if with := l.WithShare(min(own.Limit.Share(), l.Capacity())); with.TakesAhead() && l.Is(limit.Prefetched) {
		l = with
	}
	v := &ruleView{rule: p.own.rule, each: p.own.each, onError: p.own.onError, onOverload: p.own.onOverload,
		quota: p.own.quota, meta: p.own.meta, series: p.own.series, keys: p.own.keys}
	lv := *own
	lv.warnLeft = warnLeft(l, lv.warnAt)
	lv.Limit, lv.keyPart = l, l.Algorithm().KeyLetter()+own.keyPart[1:]
	lv.wide = wideness(l)
	lv.current = p.conf.Encoder.Limit(lv.label, l, p.conf.UnitMultipliers)
	v.limits = []LimitView{lv}
	if v.reserve = newReserveView(v, p.conf); v.reserve != nil {
		v.reserve.use = p.own.reserve.use
	}
	v.life = v.countersLife()
	v.count()
	return v
}

// underOverflow returns l with the overflow of the rule's own limit, or the next one to it that the
// backend keeps.
func underOverflow(l, own *limit.Limit, caps interface{ Check(*limit.Limit) error }) *limit.Limit {
	most := own.Spec().MaxDebt
	for o := own.Overflow(); o > limit.Refuse; o-- {
		if with, err := l.WithOverflow(o, most); err == nil && caps.Check(with) == nil {
			return with
		}
		most = 0
	}
	return l
}

// A policyCache keeps views of rules under policies. Few policies are in use at a time, and many
// have the same figures. A shard that is full is emptied.
type policyCache struct {
	shards [16]struct {
		sync.RWMutex
		views map[policyCacheKey]*ruleView
	}
	unusable background.LogLimit // of the log: there may be as many policies that cannot be used as there are
}

// unusablePerSecond is how many policies that cannot be used are logged in a second.
const unusablePerSecond = 10

func newPolicyCache() *policyCache {
	return &policyCache{unusable: background.LogLimit{PerSecond: unusablePerSecond}}
}

type policyCacheKey struct {
	of *policyViews
	policies.Figures
}

// maxPolicyViews bounds the views of a shard.
const maxPolicyViews = 1024

var policySeed = maphash.MakeSeed()

func (c *policyCache) get(of *policyViews, f policies.Figures) *ruleView {
	key := policyCacheKey{of, f}
	shard := &c.shards[maphash.Comparable(policySeed, key)%uint64(len(c.shards))]
	shard.RLock()
	v := shard.views[key]
	shard.RUnlock()
	if v != nil {
		return v
	}
	v = of.derive(f)
	shard.Lock()
	defer shard.Unlock()
	if shard.views == nil || len(shard.views) >= maxPolicyViews {
		shard.views = map[policyCacheKey]*ruleView{}
	}
	shard.views[key] = v
	return v
}
