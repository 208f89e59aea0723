package headgate

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/descriptors"
)

// Resources say how the rules of a domain by method and path want requests to be
// described: by the entries method, path (with the query), and then the others.
type Resources struct {
	// Any: the domain has such rules.
	Any bool
	// Headers are the request headers that they match on or count by, in lower case. A request's
	// x-plan is the entry header.x-plan.
	Headers []string
	// Entries are the names of what else they count by, or exempt by: remote_address, masked_remote_address, jwt.CLAIM.
	Entries []string
	// SOAPAction: the header SOAPAction is the entry soap_action.
	SOAPAction bool
}

// wanted keeps what the rules in force want, by domain.
type wanted struct {
	set      *descriptors.Set
	first    atomic.Pointer[wantedBy] // of the domain that was asked for first: most programs have one
	byDomain sync.Map                 // *wantedBy, of the others
}

type wantedBy struct {
	domain string
	Resources
}

// Resources returns how the rules in force want the requests of a domain to be described.
// It is for packages such as middleware.
func (l *Limiter) Resources(domain string) Resources {
	set := l.service.Rules()
	w := l.wanted.Load()
	if w == nil || w.set != set {
		w = &wanted{set: set}
		l.wanted.Store(w)
	}
	if first := w.first.Load(); first != nil && first.domain == domain {
		return first.Resources
	}
	if r, ok := w.byDomain.Load(domain); ok {
		return r.(*wantedBy).Resources
	}
	needs := set.Needs(domain)
	r := &wantedBy{domain, Resources{Any: needs.Resources, Headers: needs.Headers, Entries: needs.Entries,
		SOAPAction: needs.SOAPAction}}
	if !w.first.CompareAndSwap(nil, r) {
		w.byDomain.Store(domain, r)
	}
	return r.Resources
}
