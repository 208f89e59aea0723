package descriptors

import (
	"maps"
	"slices"
	"strings"
)

// Needs is what a domain's resources have to know of requests. A configuration of Envoy is made from it.
type Needs struct {
	// Resources: requests are described by the entries method (:method) and
	// path (:path, with the query), in this order, and then by the others
	// below, in any order. A header that a request has not, has no entry.
	Resources bool
	// Headers are the request headers that resources match on or count by, in lower case
	// and sorted; x-plan is sent as the entry header.x-plan.
	Headers []string
	// Entries are the names of others that requests are counted by, or exempt by: remote_address, masked_remote_address
	// and jwt.CLAIM, sorted.
	Entries []string
	// SOAPAction: the SOAPAction header is sent as the entry soap_action.
	SOAPAction bool
	// SOAPBinding: routes say which binding they belong to, in the entry
	// soap_binding.
	SOAPBinding bool
}

// Needs returns what the resources of a domain need; nothing if it is unknown.
func (s *Set) Needs(domain string) (n Needs) {
	d := s.domains[domain]
	if d == nil || d.resources == nil {
		return n
	}
	for _, r := range d.resources.all {
		n.soap(r)
	}
	n.Resources, n.Headers, n.Entries = true, matchedHeaders(d.resources.all), keysOf(d.resources.all)
	return n
}

func (n *Needs) soap(r *resource) {
	if r.class == classOperation {
		n.SOAPAction = true
	}
	r.each(func(c *criterion) {
		n.SOAPAction = n.SOAPAction || c.place == inAction
		n.SOAPBinding = n.SOAPBinding || c.place == inBinding
	})
}

// matchedHeaders returns the names of the headers that resources match on, or that requests are counted by.
func matchedHeaders(resources []*resource) []string {
	names := map[string]bool{}
	for _, r := range resources {
		r.looksAt(func(c *criterion) {
			if c.place == inHeader {
				names[strings.TrimPrefix(c.key, headerEntry)] = true
			}
		})
	}
	return slices.Sorted(maps.Keys(names))
}
