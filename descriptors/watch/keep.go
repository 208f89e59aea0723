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
	// errors and there was no earlier version, so that they are not limited. A file whose domain cannot be
	// read counts in Problems only.
	Missing []string
	// Refused are the domains whose requests are all refused for the same reason: see [Absent].
	Refused descriptors.DomainPatterns
}

// Absent says what becomes of requests of a domain that has no rules because its files have errors.
type Absent int

// The choices of Absent. Where a domain cannot be read from a file, all that the file's owner may have and that have no
// rules are meant: with RefuseAll and without an owner every domain without rules.
const (
	RefuseOwned Absent = iota // refuse those of an owner with a list of domains, and do not limit the others
	RefuseAll
	AllowAll
)

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
// file has errors that may have the domain, by its owner, the domain is not removed, and no file from a domain of
// several: the file with errors may be what they are in now.
type merger struct {
	opt    rulefile.Options
	check  func(*descriptors.Set) []descriptors.Problem
	absent Absent
	last   map[string][]rulefile.Source // what each domain in force was loaded from
}

// A failure is a file with errors.
type failure struct {
	owner  *rulefile.Owner
	domain string // "" if it cannot be read
}

// failures are the files with errors. Where a problem has no file, it is as if a file of any domain had one.
func failures(sources []rulefile.Source, named []string, failed []files.Unreadable,
	problems []descriptors.Problem) (list []failure) {
	at := map[string]failure{}
	for i := range sources {
		at[sources[i].Name] = failure{sources[i].Owner, named[i]}
	}
	for _, u := range failed {
		at[u.Path] = failure{owner: u.Owner}
	}
	seen := map[string]bool{}
	for _, p := range problems {
		if !p.Warning && !seen[p.File] {
			seen[p.File] = true
			list = append(list, at[p.File])
		}
	}
	return list
}

// mayHave reports whether one of the files with errors may have rules of a domain.
func mayHave(list []failure, domain string) bool {
	return slices.ContainsFunc(list, func(f failure) bool { return f.owner.MayHave(domain) })
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
	alone := map[string]*descriptors.Set{} // what each domain's files make without the others'
	for _, name := range order {
		found, more := set, []descriptors.Problem(nil)
		if len(groups[name]) < len(sources) { // else it is what was just loaded
			found, _, _ = rulefile.LoadDomains(groups[name], m.opt)
			found, more = m.checked(found)
		}
		alone[name] = found
		if !read {
			problems = append(problems, more...) // not seen above
		}
	}
	out := merged{domains: map[string][]rulefile.Source{}}
	bad := failures(sources, named, failed, problems)
	for _, name := range order {
		m.choose(&out, name, groups[name], alone[name], bad)
	}
	for _, name := range slices.Sorted(maps.Keys(m.last)) {
		if _, there := groups[name]; !there && mayHave(bad, name) {
			out.keep(name, m.last[name])
		}
	}
	if len(out.sources) > 0 {
		m.refuse(&out, bad)
		// The bounds on all rules together may still be exceeded.
		if out.set, more, _ = rulefile.LoadDomains(out.sources, m.opt); out.set == nil {
			problems = append(problems, more...)
		}
	}
	out.outcome.Problems, out.outcome.Err = problems, &files.LoadError{Problems: problems}
	return out
}

// choose adds a domain to out: by its files, of which set was made if it is not nil, or as it was.
func (m *merger) choose(out *merged, name string, files []rulefile.Source, set *descriptors.Set, bad []failure) {
	last := m.last[name]
	switch {
	case set != nil && !(mayHave(bad, name) && loses(last, files)):
		out.add(name, files)
	case last != nil:
		out.keep(name, last)
	default:
		out.outcome.Missing = append(out.outcome.Missing, name)
	}
}

// refusing is the file whose rule answers for domains that are refused. Nothing passes, also while the store is away.
const refusing = `domain: rules with errors
descriptors:
  - key: "*"
    on_backend_error: deny
    rate_limit: {unit: minute, requests_per_unit: 0}
`

// refuse has requests of domains refused that have no rules because of files with errors.
func (m *merger) refuse(out *merged, bad []failure) {
	o := &out.outcome
	for _, f := range bad {
		switch {
		case m.absent == AllowAll, m.absent == RefuseOwned && !f.owner.Lists():
		case f.domain != "":
			if slices.Contains(o.Missing, f.domain) {
				o.Refused = append(o.Refused, f.domain)
			}
		case f.owner.Lists():
			o.Refused = append(o.Refused, f.owner.Domains...)
		default:
			o.Refused = append(o.Refused, "*")
		}
	}
	if len(o.Refused) == 0 {
		return
	}
	slices.Sort(o.Refused)
	o.Refused = slices.Compact(o.Refused)
	o.Missing = slices.DeleteFunc(o.Missing, o.Refused.Has)
	out.sources = append(out.sources, rulefile.Source{Name: "(files with errors)", Data: []byte(refusing),
		Absent: o.Refused})
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
