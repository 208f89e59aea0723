package watch

import (
	"maps"
	"slices"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// An Outcome is what came of reading the files of rules.
type Outcome struct {
	// Problems are those of every file, warnings included.
	Problems []descriptors.Problem
	// Err says why not all files are in force; nil if they are.
	Err error
	// Kept are the domains that stay as they were, because a file has errors.
	Kept []string
	// Missing are the domains that have no rules because their files have
	// errors and there was no earlier version. A file whose domain cannot be
	// read counts in Problems only.
	Missing []string
}

// Errors returns how many errors each file has; files without are not in it.
func (o *Outcome) Errors() map[string]int {
	n := map[string]int{}
	for _, p := range o.Problems {
		if !p.Warning {
			n[p.File]++
		}
	}
	return n
}

// A merger keeps errors in one domain's files from others. Its unit is a domain:
// all of its files are good and it is replaced, or it stays as it was. While any
// file has errors no domain is removed, and no file from a domain of several:
// the file with errors may be what they are in now.
type merger struct {
	opt   rulefile.Options
	check func(*descriptors.Set) []descriptors.Problem
	last  map[string][]rulefile.Source // what each domain in force was loaded from
}

// A merged is what of the files can be put in force.
type merged struct {
	set     *descriptors.Set             // nil: nothing
	sources []rulefile.Source            // what it was loaded from
	domains map[string][]rulefile.Source // the same by domain
	outcome Outcome
}

// checked returns set and what check says of it; no set if that is an error.
func (m *merger) checked(set *descriptors.Set) (*descriptors.Set, []descriptors.Problem) {
	if set == nil || m.check == nil {
		return set, nil
	}
	problems := m.check(set)
	if slices.ContainsFunc(problems, func(p descriptors.Problem) bool { return !p.Warning }) {
		set = nil
	}
	return set, problems
}

// merge loads what it can of the files.
func (m *merger) merge(sources []rulefile.Source, failed []files.Unreadable) merged {
	written, problems, named := rulefile.LoadDomains(sources, m.opt)
	read := written != nil
	set, more := m.checked(written)
	problems = append(problems, more...)
	groups, order := byDomain(sources, named)
	if set != nil && len(failed) == 0 {
		return merged{set: set, sources: sources, domains: groups, outcome: Outcome{Problems: problems}}
	}
	for _, u := range failed {
		problems = append(problems, u.Problem())
	}
	out := merged{domains: map[string][]rulefile.Source{}}
	for _, name := range order {
		found, more := set, []descriptors.Problem(nil)
		if len(groups[name]) < len(sources) { // else it is what was just loaded
			found, _, _ = rulefile.LoadDomains(groups[name], m.opt)
			found, more = m.checked(found)
		}
		m.choose(&out, name, groups[name], found)
		if !read {
			problems = append(problems, more...) // not seen above
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.last)) {
		if _, there := groups[name]; !there {
			out.keep(name, m.last[name])
		}
	}
	if len(out.sources) > 0 {
		// The bounds on all rules together may still be exceeded.
		if out.set, more, _ = rulefile.LoadDomains(out.sources, m.opt); out.set == nil {
			problems = append(problems, more...)
		}
	}
	out.outcome.Problems, out.outcome.Err = problems, &files.LoadError{Problems: problems}
	return out
}

// choose adds a domain to out: by its files, of which set was made if it is not nil, or as it was.
func (m *merger) choose(out *merged, name string, files []rulefile.Source, set *descriptors.Set) {
	last := m.last[name]
	switch {
	case set != nil && !loses(last, files):
		out.add(name, files)
	case last != nil:
		out.keep(name, last)
	default:
		out.outcome.Missing = append(out.outcome.Missing, name)
	}
}

func (out *merged) add(name string, files []rulefile.Source) {
	out.domains[name] = files
	out.sources = append(out.sources, files...)
}

func (out *merged) keep(name string, files []rulefile.Source) {
	out.add(name, files)
	out.outcome.Kept = append(out.outcome.Kept, name)
}

// byDomain returns the sources of each domain, and the domains in order.
func byDomain(sources []rulefile.Source, named []string) (groups map[string][]rulefile.Source, order []string) {
	groups = map[string][]rulefile.Source{}
	for i, name := range named {
		if name == "" {
			continue
		}
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], sources[i])
	}
	return groups, order
}

// loses reports whether a domain of several files would lose one of them.
func loses(last, files []rulefile.Source) bool {
	if len(last) < 2 {
		return false
	}
	return slices.ContainsFunc(last, func(old rulefile.Source) bool {
		return !slices.ContainsFunc(files, func(s rulefile.Source) bool { return s.Name == old.Name })
	})
}
