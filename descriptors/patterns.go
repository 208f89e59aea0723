package descriptors

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of [DomainPatterns].
const maxPatterns = 10_000

// DomainPatterns are names of domains, and beginnings of names, which end with a *.
type DomainPatterns []string

// ParseDomainPatterns reads a list with commas, such as "shop,shop-*".
func ParseDomainPatterns(list string) (DomainPatterns, error) {
	var d DomainPatterns
	for _, p := range strings.Split(list, ",") {
		name := strings.TrimSuffix(p, "*")
		switch problem := wrongText("domain", name, maxDomain); {
		case p == "":
			return nil, fmt.Errorf("%q: a domain is empty; want NAME or BEGINNING*, with commas between several", list)
		case strings.Contains(name, "*"):
			return nil, fmt.Errorf("%q: a * stands at the end of a domain only", p)
		case problem != "":
			return nil, fmt.Errorf("%.100q: %s", p, problem)
		case len(d) == maxPatterns:
			return nil, fmt.Errorf("more than %d domains", maxPatterns)
		}
		d = append(d, p)
	}
	return d, nil
}

// Has reports whether a domain is one of d.
func (d DomainPatterns) Has(domain string) bool {
	return slices.ContainsFunc(d, func(p string) bool {
		begins, all := strings.CutSuffix(p, "*")
		return p == domain || all && strings.HasPrefix(domain, begins)
	})
}

// String is the list as it is written.
func (d DomainPatterns) String() string { return strings.Join(d, ",") }
