package ratelimit

import (
	"cmp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// A ruleset is a set of rules, prepared for answers.
type ruleset struct {
	set   *descriptors.Set
	views []*ruleView // by descriptors.Rule.ID

	budgets map[ruleLabel]*keyBudget // of rules that have one
	longest time.Duration            // life of a lease
	derived *policyCache             // views of those rules that have a policy
	// together are the reservations that requests ask for in one call.
	together togetherTable
	// awaited: there are no rules yet, which is not the same as rules that limit
	// nothing.
	awaited bool
}

// errAwaited answers calls until there are rules.
var errAwaited = &Error{Code: codeUnavailable, Message: "not decided: no rules have come yet"}

// A ruleView is a rule, prepared for answers.
type ruleView struct {
	rule                *descriptors.Rule
	limits              []LimitView
	each                bool
	onError, onOverload descriptors.FailurePolicy
	quota               bool
	meta                []byte // encoded metadata of the rule as answers have it, nil if the rule has no metadata

	series *ruleSeries
	keys   *keyBudget            // nil: any number of values has counters of their own
	life   time.Duration         // of counters that nobody uses: see countersLife
	shape  atomic.Pointer[Shape] // of its descriptors, once one was seen
	won    atomic.Pointer[toldChoice]

	noAddress minutely // logged: see warnOfNoAddress

	override bool // it is a request's own limit

	policies *policyViews // nil: no policy takes the place of the limit
	reserve  *reserveView // nil: requests reserve nothing

	alone         bool // see isAlone
	warns         bool // some limit has warn_at
	sharesCounter bool // an override that counts under the keys of its rule
}

// A LimitView is a limit of a rule, prepared for answers.
type LimitView struct {
	Limit   *limit.Limit
	label   string // the operator's name for it, possibly empty
	Name    string // in messages: "domain/path" or "domain/path:label"
	keyPart string
	Shadow  bool // it counts, and refuses nothing
	// reserved: requests reserve units of it.
	reserved bool
	// full takes what is left; nil if no request makes the limit full.
	full     *limit.Limit
	warnAt   int64  // in percent, 0 if the limit has none
	warnLeft int64  // see warnLeft
	near     []byte // encoded metadata of a limit that is nearly used up
	wide     int64  // see wideness
	current  []byte // encoded RateLimit
	refused  []byte // encoded metadata of a refusal

	series *ruleSeries // of its rule
	number int         // in its rule

	// For limits on requests in flight only.
	inFlight *descriptors.Concurrency
	tiers    []TierView
	domain   string // the rule's
	rule     string // the rule's path
}

// awaitedRules are there before the first rules.
func awaitedRules() *ruleset { return &ruleset{set: new(descriptors.Set), awaited: true} }

// newRuleset prepares a set of rules. It takes the views of the rules that old has, too, and returns those of rules
// that are gone.
func newRuleset(set *descriptors.Set, old *ruleset, conf *Config) (rs *ruleset, views []*ruleView) {
	rs = &ruleset{set: set, views: make([]*ruleView, set.IDs()), budgets: map[ruleLabel]*keyBudget{}}
	rs.derived = newPolicyCache()
	if old != nil && old.derived != nil {
		rs.derived = old.derived // which the views of old use
	}
	added, gone, ok := set.Since(old.rules())
	if ok {
		copy(rs.views, old.views)
		for _, r := range gone {
			if r.ID < len(rs.views) {
				rs.views[r.ID] = nil
			}
		}
	} else {
		added = set.Rules()
	}
	if !ok && old != nil {
		gone = old.set.Rules()
	}
	for _, r := range gone {
		views = append(views, old.views[r.ID])
	}
	w := &viewer{conf, overflowDefaults{}, monthDefaults{}, shareDefaults{}, rs.derived, cmp.Or(old, &ruleset{}).budgets}
	for _, r := range added {
		rs.views[r.ID] = w.view(r)
	}
	for _, v := range rs.views {
		if v != nil && v.keys != nil {
			rs.budgets[v.keys.label] = v.keys
		}
	}
	if ok && (old.longest == 0 || longestLease(gone) < old.longest) {
		rs.longest = max(old.longest, longestLease(added))
	} else {
		rs.longest = longestLease(set.Rules())
	}
	return rs, views
}

// rules returns the rules of rs, nil if rs is nil.
func (rs *ruleset) rules() *descriptors.Set {
	if rs == nil {
		return nil
	}
	return rs.set
}

// A ruleLabel is what metrics call a rule.
type ruleLabel struct{ domain, path string }

// longestLease is the longest life of a lease under rules, 0 if none limits requests in flight.
func longestLease(rules []*descriptors.Rule) (longest time.Duration) {
	for _, r := range rules {
		if r.Concurrency != nil {
			longest = max(longest, r.Concurrency.LeaseTTL)
		}
		if r.Reserve != nil {
			longest = max(longest, r.Reserve.KeptFor())
		}
	}
	return longest
}

// A viewer makes views of rules.
type viewer struct {
	conf      *Config
	overflows overflowDefaults
	months    monthDefaults
	shares    shareDefaults
	derived   *policyCache
	budgets   map[ruleLabel]*keyBudget // of the rules before
}

func (w *viewer) view(r *descriptors.Rule) *ruleView {
	conf := w.conf
	v := &ruleView{rule: r, quota: (r.Quota || conf.QuotaMode) && r.Choose == ""}
	switch {
	case r.Metadata == nil:
	case r.Choose != "":
		v.meta = conf.Encoder.Struct(r.Metadata)
	default:
		v.meta = conf.Encoder.Struct(map[string]any{"metadata": r.Metadata})
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
	w.limits(v)
	v.life = v.countersLife()
	v.keys = newKeyBudget(r, w.budgets[ruleLabel{r.Domain, r.Path}], conf.Caps.PlainWindows)
	v.alone = v.isAlone()
	return v
}

// countersLife returns how long the unused counters of a view, which may come from a policy, take to expire.
func (v *ruleView) countersLife() (life time.Duration) {
	for i := range v.limits {
		life = max(life, lifeOf(v.limits[i].Limit))
	}
	if v.reserve != nil {
		life = max(life, v.rule.Reserve.KeptFor())
	}
	return life
}

// lifeOf returns how long an unused counter takes to expire.
func lifeOf(l *limit.Limit) time.Duration {
	if l.Is(limit.Refilled) {
		return l.RefillTime(l.Capacity() + l.Below())
	}
	windows := 2 + l.Below()/max(l.Max(), 1) // a sliding window looks back at the one before
	return time.Duration(min(float64(windows)*float64(l.Window()), float64(limit.MaxWindow)))
}

// limits prepares the limits of a rule.
func (w *viewer) limits(v *ruleView) {
	r, conf := v.rule, w.conf
	v.limits = make([]LimitView, len(r.Limits))
	for i := range r.Limits {
		rl := r.Limits[i]
		if rl.AnyMonth && conf.CalendarMonths {
			rl.Limit = w.months.get(rl.Limit)
		}
		if r.Overflow == descriptors.OverflowDefault && rl.Limit.Overflow() == limit.Refuse {
			rl.Limit = w.overflows.get(overflowOf{rl.Limit, rl.Reserved}, conf)
		}
		if conf.ShareAuto && rl.Limit.Share() == 0 && !rl.Reserved {
			rl.Limit = w.shares.get(rl.Limit)
		}
		v.limits[i] = newLimitView(r, &rl, conf)
	}
	if r.Concurrency != nil {
		v.limits = append(v.limits, newInFlightView(r, conf))
	}
	if r.Policy != nil && conf.Policies != nil {
		v.policies = newPolicyViews(v, w.derived, conf)
	}
	v.reserve = newReserveView(v, conf)
	conf.Metrics.hold(v)
	v.count()
}

// monthDefaults has limits per month, with the calendar's months.
type monthDefaults map[*limit.Limit]*limit.Limit

// get returns l with the calendar's months, or l if that cannot be: with debt.
func (d monthDefaults) get(l *limit.Limit) *limit.Limit {
	other := d[l]
	if other == nil {
		other = l
		if l.Algorithm() == limit.FixedWindow {
			if with, err := l.WithCalendar(nil); err == nil {
				other = with
			}
		}
		d[l] = other
	}
	return other
}

// shareDefaults has limits, with a share that follows their traffic.
type shareDefaults map[*limit.Limit]*limit.Limit

func (d shareDefaults) get(l *limit.Limit) *limit.Limit {
	if !l.Is(limit.Prefetched) {
		return l
	}
	if d[l] == nil {
		d[l] = l.WithShare(limit.AutoShare)
	}
	return d[l]
}

// overflowDefaults has the limits of rules that do not say what becomes of a cost
// without room, under the service's default. Rules share limits.
type overflowDefaults map[overflowOf]*limit.Limit

type overflowOf struct {
	*limit.Limit
	reserved bool
}

// get returns the limit under the default, which is debt where units are reserved, or the next one
// to it that the backend keeps.
func (d overflowDefaults) get(of overflowOf, conf *Config) *limit.Limit {
	if other := d[of]; other != nil {
		return other
	}
	other, most := of.Limit, conf.Overflow.Of()
	if of.reserved {
		most = limit.Debt
	}
	for o := most; o > limit.Refuse; o-- {
		if with, err := of.WithOverflow(o, 0); err == nil && conf.Caps.Check(with) == nil {
			other = with
			break
		}
	}
	d[of] = other
	return other
}

func newLimitView(r *descriptors.Rule, rl *descriptors.RuleLimit, conf *Config) LimitView {
	name := r.Domain + "/" + r.Path
	if rl.Name != "" {
		name += ":" + rl.Name
	}
	var near []byte
	if rl.WarnAt > 0 {
		near = conf.Encoder.AppendText(nil, "near", name)
	}
	return LimitView{
		Limit:   rl.Limit,
		label:   rl.Name,
		Name:    name,
		keyPart: rl.KeyPart,
		Shadow:  rl.Shadow || r.Shadow,

		reserved: rl.Reserved,
		warnAt:   rl.WarnAt,
		warnLeft: warnLeft(rl.Limit, rl.WarnAt),

		near:    near,
		wide:    wideness(rl.Limit),
		current: conf.Encoder.Limit(rl.Name, rl.Limit, conf.UnitMultipliers),
		refused: conf.Encoder.AppendText(nil, "rule", name),
	}
}

func newInFlightView(r *descriptors.Rule, conf *Config) LimitView {
	c := r.Concurrency
	lv := newLimitView(r, &descriptors.RuleLimit{Limit: c.Limit, KeyPart: c.KeyPart}, conf)
	lv.inFlight, lv.domain, lv.rule = c, r.Domain, r.Path
	lv.tiers = newTierViews(r, lv.Name, conf.Encoder)
	return lv
}

// tier returns the tier that applies to an op with this outcome, if any.
func (lv *LimitView) tier(out *limit.Outcome) *TierView {
	for i := len(lv.tiers) - 1; i >= 0; i-- {
		t := &lv.tiers[i]
		if out.InFlight > t.Threshold && (out.Admitted || t.Status != 0) {
			return t
		}
	}
	return nil
}

// A TierView is a tier, prepared for answers.
type TierView struct {
	*descriptors.Tier
	Label    string // in metrics and logs
	refused  []byte // encoded metadata of a refusal
	delay    string // value of DelayHeader, "" for none
	hasRetry bool   // Headers has a Retry-After
	series   *ruleSeries
	number   int
}

func newTierViews(rule *descriptors.Rule, name string, encoder Encoder) []TierView {
	tiers := make([]TierView, len(rule.Concurrency.Tiers))
	for i := range tiers {
		t, v := &rule.Concurrency.Tiers[i], &tiers[i]
		v.Tier, v.Label = t, cmp.Or(t.Name, strconv.FormatInt(t.Threshold, 10))
		v.refused = encoder.Struct(map[string]any{"rule": name, "tier": v.Label, "deny_status": strconv.Itoa(t.Status)})
		if t.Status == 0 && t.Delay > 0 {
			v.delay = strconv.FormatInt(t.Delay.Milliseconds(), 10)
		}
		for _, h := range t.Headers {
			v.hasRetry = v.hasRetry || h.Name == "retry-after"
		}
	}
	return tiers
}

// A LimitLabel is what metrics call one of a rule's limits.
type LimitLabel struct {
	Name  string
	Limit *limit.Limit
}

// LimitLabels returns the labels of r's limits: their names, or their numbers
// from 1 where they have none, and "concurrency" for its limit on requests in
// flight, which is the last. No two are the same.
func LimitLabels(r *descriptors.Rule) []LimitLabel {
	labels := make([]LimitLabel, 0, len(r.Limits)+1)
	add := func(name string, l *limit.Limit) {
		for slices.ContainsFunc(labels, func(other LimitLabel) bool { return other.Name == name }) {
			name += "'"
		}
		labels = append(labels, LimitLabel{name, l})
	}
	for i := range r.Limits {
		add(cmp.Or(r.Limits[i].Name, strconv.Itoa(i+1)), r.Limits[i].Limit)
	}
	if r.Concurrency != nil {
		add("concurrency", r.Concurrency.Limit)
	}
	return labels
}
