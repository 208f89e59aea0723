package xds

import (
	"cmp"
	"slices"
	"sort"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/protofields"
)

// An id identifies a descriptor among those of its level.
type id struct{ key, value string }

// groups puts what has the same name together, in the order of the first ones: the parts of a
// domain, or descriptors of one level with the same key and value. A control plane sends such
// duplicates: Envoy Gateway does for two ways to select one CIDR. They are one rule.
func groups[T any, N comparable](list []T, nameOf func(T) N) [][]T {
	if len(list) == 1 {
		return [][]T{list}
	}
	all := make([][]T, 0, len(list))
	at := make(map[N]int, len(list))
	for i, d := range list {
		k := nameOf(d)
		if j, ok := at[k]; ok {
			all[j] = append(all[j], d)
			continue
		}
		at[k] = len(all)
		all = append(all, list[i:i+1:i+1])
	}
	return all
}

func idOf(d *rlsconf.RateLimitDescriptor) id { return id{d.GetKey(), d.GetValue()} }

// idOfEncoded is idOf of an encoded descriptor.
func idOfEncoded(b []byte) id {
	key, value, _ := protofields.Entry(b)
	return id{string(key), string(value)}
}

// combine puts the limits of equal descriptors into the body of one rule. Of limits with
// the same window the lowest applies; those of different windows apply all, so that the
// strictest answers. A limit beats unlimited. It returns whether a limit was left out.
func combine(list []descriptors.LimitSpec, r *descriptors.Body) (lost bool) {
	if len(list) == 0 {
		return false
	}
	if len(list) == 1 && !list[0].Unlimited { // which is the rule
		list[0].Alone, r.Shadow = true, list[0].Shadow
		list[0].Shadow = false
		r.Limits = list
		return false
	}
	limited := slices.DeleteFunc(slices.Clone(list), func(s descriptors.LimitSpec) bool { return s.Unlimited })
	if len(limited) == 0 {
		r.Shadow = list[0].Shadow
		list[0].Shadow = false
		r.Limits = list[:1]
		return false
	}
	sort.SliceStable(limited, func(i, j int) bool {
		a, b := &limited[i], &limited[j]
		return cmp.Or(cmp.Compare(a.Figures.Window, b.Figures.Window), cmp.Compare(shadowLast(*a), shadowLast(*b)),
			cmp.Compare(a.Figures.Max, b.Figures.Max)) < 0
	})
	kept := slices.CompactFunc(slices.Clone(limited), func(a, b descriptors.LimitSpec) bool {
		return a.Figures.Window == b.Figures.Window && a.Shadow == b.Shadow
	})
	for i := range list {
		s := &list[i]
		same := func(o descriptors.LimitSpec) bool {
			return o.Unlimited == s.Unlimited && o.Figures == s.Figures && o.Shadow == s.Shadow && o.Name == s.Name
		}
		lost = lost || !slices.ContainsFunc(kept, same)
	}
	r.Shadow = !slices.ContainsFunc(kept, func(s descriptors.LimitSpec) bool { return !s.Shadow })
	for i := range kept {
		kept[i].Alone, kept[i].Shadow = i == 0, kept[i].Shadow && !r.Shadow
	}
	r.Limits = kept
	return lost
}

func shadowLast(s descriptors.LimitSpec) int {
	if s.Shadow {
		return 1
	}
	return 0
}
