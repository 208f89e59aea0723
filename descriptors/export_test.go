package descriptors

import "github.com/headgate-rls/headgate/limit"

// What tests of the package look at from outside, since they read their rules
// with the package rulefile.
const (
	FewParams         = fewParams
	MaxAlike          = maxAlike
	MaxMatchedHeaders = maxMatchedHeaders
	MaxRegexes        = maxRegexes
)

// ResourceGroup names the counters of a resource.
func ResourceGroup(domain, counter string) string {
	return limit.MakeGroup(resourceCounter(domain, counter))
}

var (
	IsNormalPath = isNormalPath
	NormalPath   = normalPath
	ResourceKey  = resourceKey
)

// QueryOf returns a function that finds the wanted parameters of a query.
func QueryOf(raw string, wanted ...string) func(name string) (string, bool) {
	q := &queryString{raw: raw, wanted: map[string]bool{}}
	for _, name := range wanted {
		q.wanted[name] = true
	}
	return q.get
}

// StepsOfRules returns how much of a domain's tree is looked at for a descriptor.
func (s *Set) StepsOfRules(domain string, entries []Entry) (steps int) {
	s.domains[domain].root.descend(entries, &steps)
	return steps
}

// StepsOfResources is StepsOfRules for the resources.
func (s *Set) StepsOfResources(domain string, entries []Entry) (steps int) {
	_, _ = s.domains[domain].resources.find(entries, &steps)
	return steps
}
