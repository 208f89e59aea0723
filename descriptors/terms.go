package descriptors

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// terms checks what a rule does and compiles it.
func (s *spot) terms(body *Body) Terms {
	t := Terms{
		Shadow: body.Shadow, Quota: body.Quota, Metadata: body.Metadata,
		OnBackendError: body.OnBackendError, OnOverload: body.OnOverload, Charge: body.Charge,
		Overflow: body.Overflow, MaxDebt: body.MaxDebt, MaxKeys: body.MaxKeys,
	}
	s.word("on_backend_error", int(t.OnBackendError), len(failureNames))
	s.word("on_overload", int(t.OnOverload), int(FailLocal))
	s.word("charge", int(t.Charge), len(chargeNames))
	overflows := s.overflow(body)
	s.maxKeys(body)
	s.metadata(t.Metadata)
	if r := body.Response; r != nil {
		t.Response = &Response{Content: r.Content, Headers: s.answer(r.Content, r.Headers)}
	}
	t.RequestHeaders = s.answer("", body.RequestHeaders)
	warns := func(l LimitSpec) bool { return l.WarnAt != 0 }
	if len(t.RequestHeaders) > 0 && len(body.Limits) > 0 && !slices.ContainsFunc(body.Limits, warns) {
		s.errorf("request_headers", "request_headers needs a limit with warn_at in the same rule: it says from when on")
	}
	if overflows {
		s.limits(body.Limits, &t)
		s.reserve(body, &t)
	}
	if c := body.Concurrency; c != nil {
		if t.Unlimited {
			s.errorf("concurrency", "concurrency and unlimited: true contradict each other")
		} else {
			t.Concurrency = s.part(c.Place, c.Fields).concurrency(c)
		}
		if c.ByHits && len(t.Limits) > 0 {
			s.warnf("release", "with release: hits a request gives back at its end what it took of the rule's other limits, "+
				"too; put them into a rule of their own")
		}
	}
	return t
}

// word checks one of several choices, which are below most.
func (s *spot) word(field string, choice, most int) {
	if choice >= most {
		s.errorf(field, "%s has the unknown value %d", field, choice)
	}
}

// overflow checks what a rule says of costs without room, and whether it can be said
// of its limits.
func (s *spot) overflow(body *Body) bool {
	s.word("overflow", int(body.Overflow), len(overflowNames))
	switch {
	case int(body.Overflow) >= len(overflowNames):
	case body.MaxDebt != 0 && body.Overflow != OverflowDebt:
		s.errorf("max_debt", "max_debt needs overflow: debt in the same rule")
	case body.MaxDebt != 0 && !s.between("max_debt", body.MaxDebt, 1, limit.MaxUnits):
	case body.Overflow.Of() != limit.Refuse && len(body.Limits) == 0 && body.Concurrency != nil:
		s.errorf("overflow", "concurrency has no overflow: a request in flight is admitted or refused")
	default:
		return true
	}
	return false
}

// MaxKeys is the largest max_keys.
const MaxKeys = 1_000_000

// maxKeys checks how many values of a rule may have counters of their own.
func (s *spot) maxKeys(body *Body) {
	switch {
	case body.MaxKeys == 0 || !s.between("max_keys", body.MaxKeys, 1, MaxKeys):
	case body.Concurrency != nil && body.Concurrency.ByHits:
		s.errorf("max_keys", "max_keys and release: hits contradict each other: a request that counts with others could not "+
			"be given back")
	}
}

// limits compiles the limits of a rule.
func (s *spot) limits(specs []LimitSpec, t *Terms) {
	if len(specs) > maxLimits {
		s.errorf("limits", "a rule has at most %d limits, not %d", maxLimits, len(specs))
		return
	}
	var names map[string]bool
	t.Limits = slices.Grow(t.Limits, len(specs))
	for i := range specs {
		spec := &specs[i]
		at := s.part(spec.Place, spec.Fields)
		if spec.Unlimited && len(specs) > 1 {
			at.errorf("", "a limit that is unlimited must be the only one of its rule")
			return
		}
		if spec.Alone && i > 0 {
			at.errorf("", "only the first limit of a rule is called by its algorithm alone")
			continue
		}
		if !at.name(spec.Name) {
			continue
		}
		if names[spec.Name] {
			at.errorf("name", "two limits of the rule are called %q", spec.Name)
		}
		if spec.Name != "" {
			if names == nil {
				names = map[string]bool{}
			}
			names[spec.Name] = true
		}
		at.replaces(spec, t)
		switch {
		case at.isBroken(spec.Broken):
		case spec.Unlimited:
			t.Unlimited = true
			at.unlimited(spec)
		default:
			made := at.limit(spec, t)
			if made != nil && (spec.WarnAt == 0 || at.between("warn_at", spec.WarnAt, 1, 100)) {
				t.Limits = append(t.Limits, RuleLimit{Name: spec.Name, Limit: made, KeyPart: spec.keyPart(i),
					Shadow: spec.Shadow, AnyMonth: spec.AnyMonth, WarnAt: spec.WarnAt})
			}
		}
	}
	for name := range names {
		if slices.Contains(t.Replaces, name) {
			s.errorf("limits", "the rule replaces its own limit %q, which then never applies", name)
		}
	}
}

func (s *spot) unlimited(spec *LimitSpec) {
	if spec.Figures != (limit.Spec{}) || spec.Share != 0 || spec.Shadow || spec.WarnAt != 0 {
		s.errorf("", "a limit that is unlimited has no figures")
	}
}

// keyPart is what the counters of limit number i are called by.
func (spec *LimitSpec) keyPart(i int) string {
	letter := spec.Figures.Algorithm.KeyLetter()
	switch {
	case spec.Alone:
		return letter
	case spec.Name != "":
		return letter + ":" + spec.Name
	}
	return letter + "#" + strconv.Itoa(i)
}

// limit makes a limit that counts units per time; nil if that is not possible.
func (s *spot) limit(spec *LimitSpec, t *Terms) *limit.Limit {
	if spec.Figures.Algorithm == limit.Concurrency {
		s.errorf("algorithm", "limits do not have the algorithm concurrency; write concurrency: in the rule itself")
		return nil
	}
	figures := spec.Figures
	if t.Overflow != OverflowDefault {
		figures.Overflow, figures.MaxDebt = t.Overflow.Of(), t.MaxDebt
	}
	made := s.make(figures)
	if made != nil && made.Is(limit.Refilled) && made.Window() >= budgetWindow && made.Capacity() >= made.Max() {
		s.warnf("rate", "a token bucket refills all the time, so that up to %d units pass in its first %s; for a budget of "+
			"a day, a month or another period write algorithm: fixed_window, with calendar: true if it is one of the calendar",
			made.Max()+made.Capacity(), units.Format(made.Window()))
	}
	if made == nil || spec.Share == 0 {
		return made
	}
	if !made.Is(limit.Prefetched) {
		s.errorf("local_share", "%v has no local_share", made.Algorithm())
		return nil
	}
	if spec.Share == limit.AutoShare || spec.Share == limit.NoShare {
		return made.WithShare(spec.Share)
	}
	if !s.between("local_share", spec.Share, 2, limit.MaxUnits) {
		return nil
	}
	if spec.Share > made.Capacity() {
		s.errorf("local_share", "local_share %d is more than the limit ever has room for, %d", spec.Share, made.Capacity())
		return nil
	}
	return made.WithShare(spec.Share)
}

// budgetWindow is the shortest window of which people mean a budget, and not a rate.
const budgetWindow = 24 * time.Hour

// make builds a limit, or takes the equal one of another rule.
func (s *spot) make(figures limit.Spec) *limit.Limit {
	if made := s.b.limits[figures]; made != nil {
		return made
	}
	made, err := limit.New(figures)
	if err != nil {
		field, _, _ := strings.Cut(err.Error(), " ") // which the error begins with, if it is about one
		s.errorf(field, "%v", err)
		return nil
	}
	s.b.limits[figures] = made
	return made
}

// replaces reads the names that a limit replaces.
func (s *spot) replaces(spec *LimitSpec, t *Terms) {
	if len(spec.Replaces) > maxReplaces {
		s.errorf("replaces", "a limit replaces at most %d others, not %d", maxReplaces, len(spec.Replaces))
		return
	}
	for _, r := range spec.Replaces {
		at := s.part(r.Place, nil)
		switch {
		case r.Name == "":
			at.errorf("", "an entry of replaces must name a limit")
		case !at.text("", "name", r.Name, maxName):
		case r.Name == spec.Name:
			at.errorf("", "the limit %q replaces itself", r.Name)
		case !slices.Contains(t.Replaces, r.Name):
			t.Replaces = append(t.Replaces, r.Name)
		}
	}
}

// concurrency compiles a limit of requests in flight; nil if that is not
// possible.
func (s *spot) concurrency(spec *ConcurrencySpec) *Concurrency {
	c := &Concurrency{KeyPart: limit.Concurrency.KeyLetter(), LeaseTTL: spec.LeaseTTL, ByHits: spec.ByHits}
	var tiers []TierSpec
	if !s.b.Clean(func() {
		if !s.isBroken(spec.Broken) {
			s.lease(spec, c)
		}
		tiers = s.tiers(spec.Tiers)
	}) || spec.Broken || slices.ContainsFunc(tiers, func(t TierSpec) bool { return t.Broken }) {
		return nil
	}
	most := s.inFlight(spec, c, tiers)
	if most < 0 {
		return nil
	}
	if c.Limit = s.make(limit.Spec{Algorithm: limit.Concurrency, Max: most, Window: c.LeaseTTL,
		Hold: c.Hold}); c.Limit == nil {
		return nil
	}
	for i := range tiers {
		c.Tiers = append(c.Tiers, tiers[i].Tier)
	}
	return c
}

// lease checks how long requests count.
func (s *spot) lease(spec *ConcurrencySpec, c *Concurrency) {
	if c.LeaseTTL < limit.MinWindow || c.LeaseTTL > limit.MaxWindow {
		s.errorf("lease_ttl", "lease_ttl %s is outside %v to 10 years", units.Format(c.LeaseTTL), limit.MinWindow)
	}
	switch {
	case spec.ByHits && spec.Hold != nil:
		s.errorf("reject_hold",
			"reject_hold and release: hits contradict each other: with release: hits a refused request counts until its own end")
	case spec.ByHits:
		c.Hold = c.LeaseTTL
	case spec.Hold == nil:
	case *spec.Hold < 0 || *spec.Hold > c.LeaseTTL:
		s.errorf("reject_hold", "reject_hold %s is longer than the lease_ttl, %s", units.Format(*spec.Hold),
			units.Format(c.LeaseTTL))
	default:
		c.Hold = *spec.Hold
	}
}

// tiers checks the tiers one by one and returns them ascending by threshold.
func (s *spot) tiers(specs []TierSpec) []TierSpec {
	if len(specs) == 0 {
		s.errorf("", "concurrency is empty; leave it out to limit nothing")
	}
	if len(specs) > maxTiers {
		s.part(specs[maxTiers].Place, nil).errorf("", "a rule has at most %d tiers", maxTiers)
		return nil
	}
	tiers := slices.Clone(specs)
	names := map[string]bool{}
	for i := range tiers {
		at := s.part(tiers[i].Place, tiers[i].Fields)
		if at.isBroken(tiers[i].Broken) {
			continue
		}
		at.tier(&tiers[i].Tier)
		if name := tiers[i].Name; names[name] {
			at.errorf("", "two tiers are called %q", name)
		} else {
			names[name] = name != ""
		}
	}
	sort.SliceStable(tiers, func(i, j int) bool { return tiers[i].Threshold < tiers[j].Threshold })
	return tiers
}

// tier checks one tier and sorts its headers.
func (s *spot) tier(t *Tier) {
	s.name(t.Name)
	s.between("threshold", t.Threshold, 0, limit.MaxInFlight)
	switch {
	case t.Status == 0:
	case t.Status >= 200 && t.Status < minStatus:
		s.errorf("statusCode", "statusCode must be %d to %d, not %d; a tier with a delay and no statusCode lets "+
			"requests pass", minStatus, maxStatus, t.Status)
	default:
		s.between("statusCode", int64(t.Status), minStatus, maxStatus)
	}
	if t.Delay < 0 || t.Delay > maxDelay || t.Delay%time.Millisecond != 0 {
		s.errorf("delay", "delay %s is not whole milliseconds up to %s", units.Format(t.Delay), units.Format(maxDelay))
	}
	if t.Status == 0 && t.Content != "" {
		s.errorf("content", "content needs a statusCode from %d to %d: a tier without one does not answer",
			minStatus, maxStatus)
	}
	if t.Status == 0 && len(t.Headers) > 0 {
		s.errorf("headers", "headers needs a statusCode from %d to %d: a tier without one does not answer",
			minStatus, maxStatus)
	}
	t.Headers = s.answer(t.Content, t.Headers)
}

// inFlight checks the tiers as a whole and returns how many requests may be in
// flight, -1 if the tiers cannot be.
func (s *spot) inFlight(spec *ConcurrencySpec, c *Concurrency, tiers []TierSpec) int64 {
	first := slices.IndexFunc(tiers, func(t TierSpec) bool { return t.Status != 0 })
	for i := range tiers {
		t := &tiers[i]
		at := s.part(t.Place, t.Fields)
		if i > 0 && t.Threshold == tiers[i-1].Threshold {
			at.errorf("", "two tiers have the threshold %d", t.Threshold)
			return -1
		}
		if t.Status != 0 && t.Delay > 0 {
			at.warnf("", "the tier above %d refuses, and does so at once: its delay is ignored", t.Threshold)
		}
		if first < 0 || i <= first {
			continue
		}
		if t.Status == 0 {
			at.errorf("", "the tier above %d only delays, but the one above %d refuses already; give it a statusCode, "+
				"or a lower threshold",
				t.Threshold, tiers[first].Threshold)
			return -1
		}
		if c.Hold == 0 {
			at.warnf("", "the tier above %d is never reached: requests are refused from %d on, and refused ones do not count; "+
				"reject_hold: 5s would count them for a while", t.Threshold, tiers[first].Threshold)
		}
	}
	if first >= 0 {
		return tiers[first].Threshold
	}
	if spec.Hold != nil {
		s.errorf("reject_hold", "reject_hold needs a tier that refuses")
		return -1
	}
	return limit.MaxInFlight
}
