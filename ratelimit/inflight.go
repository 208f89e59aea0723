package ratelimit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/lease"
)

// Requests in flight. A request that a rule with concurrency admits gets a
// lease, which goes to the caller as a token in dynamic_metadata; a descriptor
// that brings the token back ends it. Whatever becomes of the call, no lease
// stays that nobody has: see Abandon, unsure and returns.

// A descriptor whose first entry has the key OpKey does something to the lease
// whose token its second entry, LeaseEntry, has: OpRelease ends it, OpRenew
// moves its end away. OpEnd is OpRelease for those who tell of every end a
// second time.
const (
	OpKey      = "headgate.op"
	OpRelease  = "release"
	OpEnd      = "end"
	OpRenew    = "renew"
	LeaseEntry = "lease"
)

// Names of request metadata (gRPC headers) that say more about a call.
const (
	// MetadataID is the same when the call is repeated: a repeated call gets
	// the lease that it got before, and is charged once.
	MetadataID = "x-headgate-id"
	// MetadataOwner names the proxy, for leases to go when it does.
	MetadataOwner = "x-headgate-owner"
	// MetadataLeaseKey is the name under which the token goes into
	// dynamic_metadata; without it that is DefaultLeaseKey.
	MetadataLeaseKey = "x-headgate-lease-key"
)

// DefaultLeaseKey is where Envoy finds the token in a response's dynamic_metadata.
const DefaultLeaseKey = "lease"

// DelayHeader tells Envoy's fault filter how long to keep a request waiting,
// in milliseconds.
const DelayHeader = "x-envoy-fault-delay-request"

// The names of leases' holders begin with ownerLen bytes for the owner, so
// that all of an owner's can be ended together.
const (
	ownerLen  = 8
	holderLen = ownerLen + 16
)

// inFlightRetry is what a refusal says of waiting: a request may end at any
// moment, but a client that asks all the time keeps others from it.
const inFlightRetry = time.Second

// A LeaseEvent is something that happens to leases.
type LeaseEvent uint8

// The events.
const (
	LeaseAcquired  LeaseEvent = iota
	LeaseRepeated             // acquired again by a repeated call
	LeaseReleased             // ended by its request's end
	LeaseRenewed              // its end moved away
	LeaseExpired              // had expired when its request's end was reported
	LeaseUnknown              // ended before, or never granted, when its end was reported
	LeaseOvertaken            // refused, as its end had come before
	LeaseAbandoned            // given back, as its answer was not wanted any more
	LeaseLost                 // could not be given back, and is left to expire
	LeaseReaped               // ended because its proxy is gone
	NumLeaseEvents
)

// String returns the event's metric label.
func (e LeaseEvent) String() string {
	return [NumLeaseEvents]string{"acquired", "repeated", "released", "renewed", "expired", "unknown", "overtaken", "abandoned", "lost", "reaped"}[e]
}

// LeaseCounters are the counters of a rule's leases, by [LeaseEvent].
type LeaseCounters [NumLeaseEvents]Counter

// holderOf returns the name of the holder of a call's leases.
func holderOf(r *Request) string {
	var b [holderLen]byte
	if r.Owner != "" {
		id := r.owner().id()
		copy(b[:], id[:])
	}
	if r.ID == "" {
		_, _ = rand.Read(b[ownerLen:])
		return string(b[:])
	}
	// The domain keeps two filters that send one id apart.
	sum := sha256.Sum256(limit.AppendPart(limit.AppendPart(nil, r.Domain), r.ID))
	copy(b[ownerLen:], sum[:])
	return string(b[:])
}

// A tierView is a tier as answers see it.
type tierView struct {
	*descriptors.Tier
	label    string // in metrics and logs
	refused  []byte // encoded metadata of a refusal
	delay    string // value of DelayHeader, "" for none
	hasRetry bool   // Headers has a Retry-After
	hits     Counter
}

func newTierViews(rule *descriptors.Rule, name string, metrics Metrics) []tierView {
	tiers := make([]tierView, len(rule.Concurrency.Tiers))
	for i := range tiers {
		t, v := &rule.Concurrency.Tiers[i], &tiers[i]
		v.Tier, v.label = t, t.Name
		if v.label == "" {
			v.label = strconv.FormatInt(t.Threshold, 10)
		}
		v.refused = encodeMetadata(map[string]any{"rule": name, "tier": v.label, "deny_status": strconv.Itoa(t.Status)})
		if t.Status == 0 && t.Delay > 0 {
			v.delay = strconv.FormatInt(t.Delay.Milliseconds(), 10)
		}
		for _, h := range t.Headers {
			v.hasRetry = v.hasRetry || h.Name == "retry-after"
		}
		v.hits = metrics.Tier(rule.Domain, rule.Path, v.label)
	}
	return tiers
}

// tier returns the tier that applies to an op with this outcome, if any.
func (lv *limitView) tier(out *limit.Outcome) *tierView {
	for i := len(lv.tiers) - 1; i >= 0; i-- {
		t := &lv.tiers[i]
		if out.InFlight > t.Threshold && (out.Admitted || t.Status != 0) {
			return t
		}
	}
	return nil
}

// leaseOp completes an op of a rule that limits requests in flight.
func (c *call) leaseOp(op *limit.Op) {
	if c.holder == "" {
		c.holder = holderOf(c.req)
	}
	if op.Cost > 0 {
		op.Holder = c.holder
	}
}

// An ending is a descriptor that brings a token back.
type ending struct {
	lease.Lease
	first, n int // its ops in call.ends; none if the token is not ours
}

// endOps adds what the lease descriptor i asks for.
func (c *call) endOps(b *batch, i int) *Error {
	d := &c.req.Descriptors[i]
	cost, ending := int64(-1), limit.EndLease
	switch d.Entries[0].Value {
	case OpRelease:
	case OpEnd:
		ending = limit.EndKnown
	case OpRenew:
		cost = 0
	default:
		return invalid("descriptors[%d]: %s is %q, want %q or %q", i, OpKey, d.Entries[0].Value, OpRelease, OpRenew)
	}
	if len(d.Entries) != 2 || d.Entries[1].Key != LeaseEntry {
		return invalid("descriptors[%d]: %s wants one more entry, %s", i, OpKey, LeaseEntry)
	}
	if len(c.endings) >= lease.MaxHeld {
		return invalid("more than %d leases in a request", lease.MaxHeld)
	}
	c.endings = grow(c.endings, len(c.endings)+1)
	e := &c.endings[len(c.endings)-1]
	e.first, e.n = len(c.ends), 0
	if err := b.s.conf.Leases.Parse(d.Entries[1].Value, &e.Lease); err != nil {
		b.s.conf.Metrics.Lease("", "")[LeaseUnknown].Inc()
		const message = "a release has a lease that is not ours: replicas need the same lease secret"
		if ok, skipped := b.s.failures.allow(message); ok {
			b.s.conf.Log.Warn(message, "domain", c.req.Domain, "not_logged", skipped)
		}
		return nil
	}
	if e.Holder == "" { // would end somebody's
		return invalid("descriptors[%d]: the lease names no holder", i)
	}
	if len(e.Holder) == holderLen {
		c.resp.owner = OwnerID([]byte(e.Holder[:ownerLen]))
		b.s.owners.brought(c.resp.owner)
	}
	e.n = len(e.Held)
	for j := range e.Held {
		h := &e.Held[j]
		c.ends = append(c.ends, limit.Op{Key: h.Key, Limit: lifeOf(h.TTL), Cost: cost, Holder: e.Holder, Ending: ending, Shadow: true})
	}
	return nil
}

// addEndings makes a request of each lease that the call brings back: it must
// be ended whatever becomes of the rest.
func (c *call) addEndings(b *batch) {
	c.endTake = len(b.takes)
	for i := range c.endings {
		if e := &c.endings[i]; e.n > 0 {
			b.ending = true
			b.takes = append(b.takes, limit.Request{Ops: c.ends[e.first : e.first+e.n : e.first+e.n]})
		}
	}
}

// ended counts what became of the leases that the call brought back, under the
// domain that granted them, and keeps for later what the backend could not do
// now.
func (c *call) ended(b *batch) {
	if len(c.ends) > 0 && b.s.localLeases() {
		b.s.endLocally(c.ends)
	}
	at := c.endTake
	for i := range c.endings {
		e := &c.endings[i]
		if e.n == 0 {
			continue
		}
		v := &b.verdicts[at]
		at++
		for j := range e.Held[:e.n] {
			op := &c.ends[e.first+j]
			if v.Err != nil {
				b.s.returns.push(op, e.Domain, e.Held[j].Rule)
				continue
			}
			b.s.leaseEnded(op, &v.Outcomes[j], e.Domain, e.Held[j].Rule, v.At >= e.Until, v.At)
		}
		if v.Err != nil {
			b.s.logRelease(c.req.Domain, v.Err)
		}
	}
}

// Abandoned ends what the request of a caller who has gone brings back: requests
// in flight have ended whether or not somebody waits for the answer. It does
// not wait for the backend, and decides nothing else.
func (s *Service) Abandoned(req *Request) {
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	defer b.release()
	var resp Response
	b.start(s, []*Request{req}, []*Response{&resp})
	if resp.Err != nil {
		return
	}
	c := &b.calls[0]
	if len(c.ends) > 0 && s.localLeases() {
		s.endLocally(c.ends)
	}
	for i := range c.endings {
		e := &c.endings[i]
		for j := range e.Held[:e.n] {
			s.returns.push(&c.ends[e.first+j], e.Domain, e.Held[j].Rule)
		}
	}
	for i := range c.ops {
		if op := &c.ops[i]; c.views[i].inFlight != nil && op.Cost < 0 {
			op.Key.Group = strings.Clone(op.Key.Group) // it is a part of the message
			s.returns.push(op, strings.Clone(c.req.Domain), c.views[i].rule)
		}
	}
}

// leaseEnded counts what became of a lease that was to be ended or renewed.
func (s *Service) leaseEnded(op *limit.Op, out *limit.Outcome, domain, rule string, expired bool, now limit.Instant) {
	event := LeaseUnknown
	if op.Cost < 0 {
		s.places.ended(op.Key, inFlight(out), now)
	}
	switch {
	case out.Held && op.Cost == 0:
		event = LeaseRenewed
		s.places.saw(op.Key, domain, rule, op.Limit.Window(), inFlight(out), now)
	case out.Held && op.Ending == limit.EndAttempt:
		event = LeaseAbandoned
	case out.Held:
		event = LeaseReleased
	case op.Ending == limit.EndKnown, op.Ending == limit.EndAttempt:
		return // it was reported before, or had taken nothing
	case expired:
		event = LeaseExpired
	}
	s.conf.Metrics.Lease(domain, rule)[event].Inc()
}

// logRelease logs that leases could not be given back.
func (s *Service) logRelease(domain string, err error) {
	const message = "failed to decrement rate limiter count: "
	if ok, skipped := s.failures.allow(message); ok {
		s.conf.Log.Warn(message+err.Error()+"; headgate tries again until the lease expires",
			"domain", domain, "not_logged", skipped)
	}
}

// grant gives the caller the token of the leases that v grants, and delays the
// request as the tiers say.
func (c *call) grant(b *batch, v *limit.Verdict, local bool) {
	c.token.Held = c.token.Held[:0]
	var delay *tierView
	until, longest := limit.Instant(0), time.Duration(0)
	for i := range c.ops {
		lv, out := c.views[i], &v.Outcomes[i]
		if lv.inFlight == nil || c.ops[i].Cost <= 0 || !out.Admitted {
			continue
		}
		c.resp.granted = append(c.resp.granted, granted{c.ops[i], lv.domain, lv.rule})
		if t := lv.tier(out); t != nil && !lv.shadow {
			t.hits.Inc()
			if t.delay != "" && (delay == nil || t.Delay > delay.Delay) {
				delay = t
			}
		}
		if out.Held {
			lv.leases[LeaseRepeated].Inc()
		} else {
			lv.leases[LeaseAcquired].Inc()
		}
		ttl := lv.inFlight.LeaseTTL
		if !local {
			b.s.places.saw(c.ops[i].Key, c.req.Domain, lv.rule, ttl, out.InFlight, v.At)
		}
		longest = max(longest, ttl)
		if end := v.At.Add(ttl); until == 0 || end < until {
			until = end
		}
		if !lv.inFlight.ByHits {
			c.token.Held = append(c.token.Held, lease.Held{Key: c.ops[i].Key, TTL: ttl, Rule: lv.rule})
		}
	}
	if delay != nil {
		c.resp.RequestHeaders = append(c.resp.RequestHeaders, descriptors.Header{Name: DelayHeader, Value: delay.delay})
	}
	if len(c.token.Held) == 0 {
		return
	}
	if local {
		b.s.heldLocally(longest)
	}
	if c.req.Owner != "" {
		b.s.owners.granted(c.req.owner())
	}
	c.token.Holder, c.token.Replica, c.token.Until, c.token.Domain = c.holder, b.s.conf.Replica, until, c.req.Domain
	token, err := b.s.conf.Leases.Sign(&c.token)
	c.token.Domain = "" // keeps the request's memory alive
	if err != nil {
		b.s.Abandon(c.resp)
		c.resp.Err = invalid("%v", err)
		return
	}
	key := c.req.LeaseKey
	if key == "" {
		key = DefaultLeaseKey
	}
	c.tokens = appendTextMetadata(c.tokens[:0], key, token)
	c.resp.metadata = append(c.resp.metadata, c.tokens)
}

// appendTextMetadata appends an encoded google.protobuf.Struct with one field.
func appendTextMetadata(b []byte, key, value string) []byte {
	inner := protowire.SizeTag(3) + protowire.SizeBytes(len(value))
	entry := protowire.SizeTag(1) + protowire.SizeBytes(len(key)) + protowire.SizeTag(2) + protowire.SizeBytes(inner)
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(entry))
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), key)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(inner))
	return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), value)
}

// A granted is a lease that a response is about to hand out. It must keep none
// of the request's memory alive, which may be much.
type granted struct {
	op           limit.Op
	domain, rule string
}

// Abandon gives back the leases that resp grants, because nobody will use it:
// its caller has given the call up or is gone. It does not wait.
func (s *Service) Abandon(resp *Response) {
	for i := range resp.granted {
		s.abandon(&resp.granted[i])
	}
	resp.granted = resp.granted[:0]
}

func (s *Service) abandon(g *granted) {
	back := g.op
	back.Cost, back.Ending, back.Shadow = -1, limit.EndAttempt, true
	s.returns.push(&back, g.domain, g.rule)
}

// Undo returns what abandons resp's leases later, should its caller turn out
// not to have got it; nil if it grants none. resp may be used again meanwhile.
func (s *Service) Undo(resp *Response) func() {
	if len(resp.granted) == 0 {
		return nil
	}
	list := slices.Clone(resp.granted)
	return func() {
		for i := range list {
			s.abandon(&list[i])
		}
	}
}

// unsure gives back leases that a failed take may have taken.
func (c *call) unsure(b *batch, err error) {
	if errors.Is(err, backends.ErrNotApplied) {
		return
	}
	for i := range c.ops {
		if op := &c.ops[i]; c.views[i].inFlight != nil && op.Cost > 0 {
			b.s.abandon(&granted{*op, strings.Clone(c.req.Domain), c.views[i].rule})
		}
	}
}

// temper makes the waits of limits on requests in flight sensible: they say
// when leases expire, but requests end long before.
func (c *call) temper(v *limit.Verdict) {
	for i := range v.Outcomes {
		lv, out := c.views[i], &v.Outcomes[i]
		if lv.inFlight == nil {
			continue
		}
		if out.Retry == limit.Never && c.ops[i].Cost > 0 && lv.limit.Max() > 0 {
			lv.leases[LeaseOvertaken].Inc()
		}
		out.Reset = 0
		if out.Retry > 0 {
			out.Retry = inFlightRetry
		}
	}
}

// detach returns a context that does not end when the caller gives up: what
// brings leases back must run to its end.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}
