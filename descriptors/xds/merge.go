package xds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// An id is what the descriptors of one level are told apart by.
type id struct{ key, value string }

// groups puts descriptors of one level that have the same key and value together, in
// the order of their first ones. A control plane sends such duplicates: Envoy Gateway
// does for two ways to select one CIDR. They are one rule.
func groups(list []*rlsconf.RateLimitDescriptor) [][]*rlsconf.RateLimitDescriptor {
	if len(list) == 1 {
		return [][]*rlsconf.RateLimitDescriptor{list}
	}
	all := make([][]*rlsconf.RateLimitDescriptor, 0, len(list))
	at := make(map[id]int, len(list))
	for i, d := range list {
		k := id{d.GetKey(), d.GetValue()}
		if j, ok := at[k]; ok {
			all[j] = append(all[j], d)
			continue
		}
		at[k] = len(all)
		all = append(all, list[i:i+1:i+1])
	}
	return all
}

// A said is the limit that one of several equal descriptors has.
type said struct {
	limit    *limit.Limit // nil: unlimited
	name     string
	replaces []string
	shadow   bool
}

// combine puts the limits of equal descriptors into the body of one rule. Of limits with
// the same window the lowest applies; those of different windows apply all, so that the
// strictest answers. A limit beats unlimited. It returns whether a limit was left out.
func combine(list []said, r *descriptors.Body) (lost bool) {
	limited := slices.DeleteFunc(slices.Clone(list), func(s said) bool { return s.limit == nil })
	if len(list) == 0 {
		return false
	}
	if len(limited) == 0 {
		r.Unlimited, r.UnlimitedName, r.Shadow = true, list[0].name, list[0].shadow
		refer(r, &list[0])
		return false
	}
	slices.SortStableFunc(limited, func(a, b said) int {
		return cmp.Or(cmp.Compare(a.limit.Window(), b.limit.Window()), cmp.Compare(shadowLast(a), shadowLast(b)), cmp.Compare(a.limit.Max(), b.limit.Max()))
	})
	kept := slices.CompactFunc(slices.Clone(limited), func(a, b said) bool { return a.limit.Window() == b.limit.Window() && a.shadow == b.shadow })
	r.Shadow = !slices.ContainsFunc(kept, func(s said) bool { return !s.shadow })
	for i := range kept {
		s := &kept[i]
		part := limit.FixedWindow.KeyLetter()
		if i > 0 {
			part += fmt.Sprintf("#%d", i)
		}
		r.Limits = append(r.Limits, descriptors.RuleLimit{Name: s.name, Limit: s.limit, KeyPart: part, Shadow: s.shadow && !r.Shadow})
		refer(r, s)
	}
	for i := range list {
		s := &list[i]
		same := func(o said) bool { return o.limit == s.limit && o.shadow == s.shadow && o.name == s.name }
		lost = lost || !slices.ContainsFunc(kept, same)
	}
	return lost
}

func shadowLast(s said) int {
	if s.shadow {
		return 1
	}
	return 0
}

// refer notes the name of a limit and whom it replaces.
func refer(r *descriptors.Body, s *said) {
	if s.name != "" {
		r.References = append(r.References, descriptors.Reference{From: s.name, Place: r.Place})
	}
	for _, to := range s.replaces {
		if !slices.Contains(r.Replaces, to) {
			r.Replaces = append(r.Replaces, to)
		}
		r.References = append(r.References, descriptors.Reference{From: s.name, To: to, Place: r.Place})
	}
}

// join adds metadata to what is there, which wins.
func join(to, more map[string]any) map[string]any {
	if to == nil || more == nil {
		if to == nil {
			return more
		}
		return to
	}
	out := maps.Clone(more)
	maps.Copy(out, to)
	return out
}
