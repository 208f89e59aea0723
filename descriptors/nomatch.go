package descriptors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// maxCompared bounds the keys among which a similar one is looked for.
const maxCompared = 1000

// WhyNoMatch says in words why no rule of a domain of the set matches a descriptor; "" if one does. Values of the
// descriptor are not in the text.
func (s *Set) WhyNoMatch(domain string, entries []Entry) string {
	var m Match
	s.Match(domain, entries, &m)
	d := s.domains[domain]
	switch {
	case m.Rule != nil:
		return ""
	case d == nil:
		return s.noDomain(domain)
	case d.resources != nil && asksForResource(entries):
		return "no resource of the domain has this method and path"
	case d.root == nil:
		return "the domain has no rules of descriptors"
	}
	return d.root.whyNot(entries)
}

func (lv *level) whyNot(entries []Entry) string {
	var steps int
	for i := range entries {
		if lv == nil {
			return fmt.Sprintf("the rules end after entry %d, and the descriptor has %d entries", i, len(entries))
		}
		n := lv.find(&entries[i], &steps)
		if n == nil {
			return lv.whyNotHere(&entries[i], i)
		}
		lv = n.next
	}
	return "the rules for it need one more entry: " + spell.OneOf(quoted(lv.keys()))
}

// whyNotHere says why no rule of the level matches entry i.
func (lv *level) whyNotHere(e *Entry, i int) string {
	keys := lv.keys()
	key := fmt.Sprintf("%q (entry %d)", spell.Short(e.Key), i+1)
	if slices.Contains(keys, e.Key) {
		return "rules have the key " + key + ", but not for this value"
	}
	return "no rule has the key " + key + spell.DidYouMean(e.Key, keys)
}

// keys returns the keys of a level's rules, in alphabetical order, as many as are compared.
func (lv *level) keys() []string {
	if lv == nil {
		return nil
	}
	set := map[string]bool{}
	for e := range lv.exact {
		if set[e.Key] = true; len(set) >= maxCompared {
			break
		}
	}
	for key := range lv.bare {
		if set[key] = true; len(set) >= maxCompared {
			break
		}
	}
	if lv.wild != nil {
		for key := range lv.wild.values {
			if set[key] = true; len(set) >= maxCompared {
				break
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func quoted(keys []string) (list []string) {
	const most = 5
	for _, key := range keys[:min(len(keys), most)] {
		list = append(list, fmt.Sprintf("%q", spell.Short(key)))
	}
	if len(keys) > most {
		list = append(list, "another")
	}
	return list
}

// noDomain says that rules have no such domain, and which they have.
func (s *Set) noDomain(domain string) string {
	known := s.Domains()
	if len(known) == 0 {
		return "no rules have the domain: there are none"
	}
	slices.Sort(known)
	return "no such domain; there are: " + strings.Join(quoted(known), ", ") + spell.DidYouMean(domain, known)
}
