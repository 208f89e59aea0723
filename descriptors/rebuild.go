package descriptors

import (
	"slices"
	"sort"
)

// A branch is what was made of a rule at the top of a domain, and of all below it.
type branch struct {
	spec        *RuleSpec
	domain      string
	node        *node
	first, last int // of the set's rules, from and below
	count       int // of rules in the spec, with those that only lead to others
	*remarks
}

// remarks are what a later build has to say again of a branch. Most have none.
type remarks struct {
	refs     []reference
	warnings []Problem
}

// A mark is how far a builder was before a branch.
type mark struct{ rules, count, refs, problems int }

func (b *builder) mark() mark {
	return mark{len(b.set.rules), b.count, len(b.refs), len(b.list)}
}

// keep notes the branch at w, which began at a mark. Those that are not at the top of a domain are
// parts of others. If problems are not listed any more, there is no telling which a branch has.
func (b *builder) keep(w *way, n *node, from mark) {
	if !b.rebuilds || w.depth != 1 || b.Full() {
		return
	}
	made := branch{spec: w.spec, domain: w.domain.name, node: n, first: from.rules, last: len(b.set.rules),
		count: b.count - from.count}
	if len(b.refs) > from.refs || len(b.list) > from.problems {
		made.remarks = &remarks{slices.Clone(b.refs[from.refs:]), slices.Clone(b.list[from.problems:])}
	}
	b.set.branches = append(b.set.branches, made)
}

// byRule returns the branches of s by what they were made of.
func (s *Set) byRule() map[*RuleSpec]*branch {
	// A set that has lost most of its rules is the last of its line, because their IDs are not used.
	if s.ids > 2*len(s.rules)+maxIdle {
		return nil
	}
	m := make(map[*RuleSpec]*branch, len(s.branches))
	for i := range s.branches {
		m[s.branches[i].spec] = &s.branches[i]
	}
	return m
}

// maxIdle bounds the IDs that are not used, beside those of as many rules as there are.
const maxIdle = 1000

// reuse takes what the old set made of the rule at w. It reports false if that has to be made.
func (b *builder) reuse(w *way, to *siblings) bool {
	if w.depth != 1 {
		return false
	}
	made := b.branches[w.spec]
	if made == nil || made.domain != w.domain.name || b.count+made.count > MaxRules || to.ids[w.id] != nil {
		return false
	}
	to.ids[w.id] = w.spec
	from := b.mark()
	b.count += made.count
	b.set.rules = append(b.set.rules, b.old.rules[made.first:made.last]...)
	b.set.kept = append(b.set.kept, span{made.first, made.last})
	if made.remarks != nil {
		b.refs = append(b.refs, made.refs...)
		b.Add(made.warnings...)
	}
	to.add(w.spec, made.node)
	b.keep(w, made.node, from)
	return true
}

// noID is the ID of a rule that has none yet.
const noID = -1

// number gives the rules that are new the IDs that no other rule has.
func (b *builder) number() {
	if b.branches != nil {
		b.set.ids, b.set.free = b.old.ids, slices.Clone(b.old.free)
		for _, r := range b.set.gone(b.old) {
			b.set.free = append(b.set.free, r.ID)
		}
	}
	for _, r := range b.set.added {
		if last := len(b.set.free) - 1; last >= 0 {
			r.ID, b.set.free = b.set.free[last], b.set.free[:last]
		} else {
			r.ID = b.set.ids
			b.set.ids++
		}
	}
}

// A span are rules of a set, from first and below last.
type span struct{ first, last int }

// Since returns the rules that only s has, and those that only old has. It reports false if s was not
// made of old by [Rebuild], so that all of their rules may differ.
func (s *Set) Since(old *Set) (added, gone []*Rule, ok bool) {
	if old == nil || s.from == nil || s.from != old.line {
		return nil, nil, false
	}
	return s.added, s.gone(old), true
}

// gone returns the rules of old that s has not kept.
func (s *Set) gone(old *Set) (gone []*Rule) {
	kept := slices.Clone(s.kept)
	sort.Slice(kept, func(i, j int) bool { return kept[i].first < kept[j].first })
	next := 0
	for _, k := range kept {
		gone = append(gone, old.rules[next:k.first]...)
		next = k.last
	}
	return append(gone, old.rules[next:]...)
}
