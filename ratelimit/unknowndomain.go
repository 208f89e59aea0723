package ratelimit

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// unknownDomainEvery is how often the log says that somebody asks about a domain that no rules
// have.
const unknownDomainEvery = time.Minute

// maxComparedRules bounds the rules among whose domains a similar one is looked for: a caller waits
// meanwhile.
const maxComparedRules = 10_000

// An unknownDomains is when the log may have the next line about a domain that no rules have.
type unknownDomains struct {
	next atomic.Int64 // Unix nanoseconds
}

// warnOfUnknownDomain logs a call whose domain no rules have.
func warnOfUnknownDomain(b *batch, c *call) {
	for i := range c.decisions {
		if d := &c.decisions[i]; d.match.Domain {
			return
		} else if !d.returns {
			b.engine.unknown.log(&b.engine.conf, c.req.Domain, b.rules.set)
			return
		}
	}
}

// log says that requests of a domain pass because no rules have it: callers and rules name it
// differently, and neither fails. The name is the caller's text, so the log has the beginning of it.
func (u *unknownDomains) log(conf *Config, domain string, set *descriptors.Set) {
	now := time.Now().UnixNano()
	next := u.next.Load()
	if now < next || !u.next.CompareAndSwap(next, now+int64(unknownDomainEvery)) {
		return
	}
	similar := ""
	if len(set.Rules()) <= maxComparedRules {
		similar = spell.Nearest(domain, set.Domains())
	}
	conf.Log.Warn("requests of a domain that no rules have are not limited",
		"domain", strings.Clone(spell.Short(domain)), "similar", similar)
}
