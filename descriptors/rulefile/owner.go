package rulefile

import (
	"fmt"
	"sort"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
)

// An Owner is a file or directory of rules that may have the rules of some domains only, so that no team changes what
// another one serves.
type Owner struct {
	Path string
	// Domains are those that it may have; nil: all that no other owner has.
	Domains descriptors.DomainPatterns
	others  []*Owner // of all, those with Domains
}

// Owners are those whose files are read together.
type Owners []*Owner

// CutDomains cuts a path from the list of domains that follows it after the last =. A list has no slash, so that what
// has one there is a part of the path.
func CutDomains(given string) (path, list string, ok bool) {
	i := strings.LastIndexByte(given, '=')
	if i < 0 || strings.Contains(given[i:], "/") {
		return given, "", false
	}
	return given[:i], given[i+1:], true
}

// ParseOwners reads paths, of which each may be followed by = and the domains that its files may have:
// team-a/=shop,shop-*. A path may come again with further domains. Where no path has such a list, all files may have
// every domain.
func ParseOwners(paths []string) (Owners, error) {
	var all, listed Owners
	byPath := map[string]*Owner{}
	for _, p := range paths {
		path, list, lists := CutDomains(p)
		var domains descriptors.DomainPatterns
		if lists {
			var err error
			if domains, err = descriptors.ParseDomainPatterns(list); err != nil {
				return nil, fmt.Errorf("%s: the domains of its files: %w", path, err)
			}
		}
		switch o := byPath[path]; {
		case o == nil || !lists && o.Domains == nil: // who names a path twice gets its files twice, and an error of each
			o = &Owner{Path: path, Domains: domains}
			byPath[path] = o
			all = append(all, o)
			if lists {
				listed = append(listed, o)
			}
		case lists && o.Domains != nil:
			o.Domains = append(o.Domains, domains...)
		default:
			return nil, fmt.Errorf("%s stands once with the domains of its files and once without", path)
		}
	}
	for _, o := range all {
		o.others = listed
	}
	return all, all.overlap()
}

// overlap reports two owners of one domain.
func (all Owners) overlap() error {
	type claim struct {
		begins string
		any    bool
		by     *Owner
	}
	var claims []claim
	for _, o := range all {
		for _, p := range o.Domains {
			begins, any := strings.CutSuffix(p, "*")
			claims = append(claims, claim{begins, any, o})
		}
	}
	sort.Slice(claims, func(i, j int) bool { return claims[i].begins < claims[j].begins })
	for i, c := range claims {
		for _, d := range claims[i+1:] {
			if d.begins != c.begins && !(c.any && strings.HasPrefix(d.begins, c.begins)) {
				break
			}
			if c.by != d.by && (c.any || d.any || c.begins == d.begins) {
				return fmt.Errorf("%s (%s) and %s (%s) both have domain %q: a domain has one owner", c.by.Path, c.by.Domains,
					d.by.Path, d.by.Domains, d.begins)
			}
		}
	}
	return nil
}

// Paths are those of the owners, without domains.
func (all Owners) Paths() []string {
	paths := make([]string, len(all))
	for i, o := range all {
		paths[i] = o.Path
	}
	return paths
}

// MayHave reports whether files of o may have rules of a domain. A nil Owner may have all.
func (o *Owner) MayHave(domain string) bool { return o == nil || o.refusal(domain) == "" }

// Lists reports whether it is said which domains files of o may have.
func (o *Owner) Lists() bool { return o != nil && o.Domains != nil }

// refusal says why files of o may not have a domain; "" if they may.
func (o *Owner) refusal(domain string) string {
	if o.Domains.Has(domain) {
		return ""
	}
	if o.Domains != nil {
		return fmt.Sprintf("domain %q is not one of those that files of %s may have: %.200s", domain, o.Path, o.Domains)
	}
	for _, other := range o.others {
		if other.Domains.Has(domain) {
			return fmt.Sprintf("domain %q belongs to files of %s, and this is none of them", domain, other.Path)
		}
	}
	return ""
}
