package ratelimit

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// coverDescriptors counts which shapes of descriptors rules match, and logs those that none does: Envoy and the
// rules spell a key differently, most likely, and nothing is limited.
func coverDescriptors(b *Batch, c *Call) {
	var s *Shape
	covered := false
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if d.returns || !d.match.Domain { // unknown domains are logged as such
			continue
		}
		s = b.engine.shapeOf(d.match.Rule, b.rules, c.Request.Domain, d.Entries, b.Instant())
		s.Seen(b.Instant())
		if d.view != nil { // of a rule, or of the request's own limit
			covered = true
			if len(c.Decisions) == 1 {
				b.tally.add(&s.alone)
				return
			}
			b.tally.add(&s.matched)
			continue
		}
		b.tally.add(&s.Missed)
		if !s.Named.Load() && b.engine.unmatched.allow(time.Now()) && !s.Named.Swap(true) {
			b.warnOfNoMatch(c.Request.Domain, d.Entries)
		}
	}
	switch {
	case covered:
		b.tally.add(&s.covered)
	case s != nil:
		b.tally.add(&s.Uncovered)
	}
}

// shapeOf returns the shape of a descriptor. All descriptors that a rule matches have the same, unless the rule has a *
// in a key: then it is that of the first one.
func (e *engine) shapeOf(r *descriptors.Rule, rules *ruleset, domain string, entries []descriptors.Entry,
	now int64) *Shape {
	if r == nil {
		return e.coverage.Of(domain, entries, now)
	}
	v := rules.views[r.ID]
	s := v.shape.Load()
	if s == nil {
		s = e.coverage.Of(domain, entries, now)
		v.shape.Store(s)
	}
	return s
}

// Instant returns the time of the slice, in µs since 1970. It is the same for all calls of the slice.
func (b *Batch) Instant() int64 {
	if b.at == 0 {
		b.at = time.Now().UnixMicro()
	}
	return b.at
}

func (b *Batch) warnOfNoMatch(domain string, entries []descriptors.Entry) {
	e := b.engine
	keys := make([]string, len(entries))
	for i := range entries {
		keys[i] = entries[i].Key
	}
	e.conf.Log.Warn("descriptors that no rule matches are not limited", "domain", strings.Clone(domain),
		"entries", spell.Short(strings.Join(keys, ", ")), "why", b.rules.set.WhyNoMatch(domain, entries),
		"key", e.LoggedKey(domain, entries))
}

// warnOfNoAddress logs a request without the address that its rule counts by. Envoy knows the address of every client,
// so that it does not send it, and all of them share one counter.
func (b *Batch) warnOfNoAddress(v *ruleView, entries []descriptors.Entry) {
	for _, name := range v.rule.By {
		if !strings.HasSuffix(name, "remote_address") ||
			slices.ContainsFunc(entries, func(e descriptors.Entry) bool { return e.Key == name && e.Value != "" }) {
			continue
		}
		if conf := &b.engine.conf; served(conf) && v.noAddress.allow(time.Now()) {
			conf.Log.Warn("requests do not say what a rule counts by; they share one counter: configure Envoy to send it",
				"domain", v.rule.Domain, "rule", v.rule.Path, "missing", name)
		}
	}
}

// maxComparedRules bounds the rules among whose domains a similar one is looked for: a caller waits meanwhile.
const maxComparedRules = 10_000

// warnOfUnknownDomain counts and logs a call whose domain no rules have: callers and rules name it differently, and
// neither fails. The name is the caller's text, so the log has the beginning of it.
func warnOfUnknownDomain(b *Batch, c *Call) {
	if !c.lacksDomain() {
		return
	}
	b.engine.unknowns.add(c.Request, time.UnixMicro(b.Instant()))
	if !b.engine.unknown.allow(time.Now()) {
		return
	}
	set := b.rules.set
	similar := ""
	if len(set.Rules()) <= maxComparedRules {
		similar = spell.Nearest(c.Request.Domain, set.Domains())
	}
	b.engine.conf.Log.Warn("requests of a domain that no rules have are not limited",
		"domain", strings.Clone(spell.Short(c.Request.Domain)), "similar", similar)
}

// A minutely allows an event once a minute.
type minutely struct {
	next atomic.Int64 // Unix nanoseconds
}

func (m *minutely) allow(at time.Time) bool {
	next, now := m.next.Load(), at.UnixNano()
	early := now < next && next-now <= int64(time.Minute) // else the clock has stepped back
	return !early && m.next.CompareAndSwap(next, now+int64(time.Minute))
}

// Coverage returns what has been seen of the shapes of descriptors.
func (s *Service) Coverage() *Coverage { return s.coverage }
