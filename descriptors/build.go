package descriptors

import (
	"github.com/headgate-rls/headgate/limit"
)

// Build compiles the rules of a source, whatever it read them from. It checks
// each value of a rule, and what concerns several rules: that no two are the
// same, that the limits exist that others replace, that matching stays fast.
// What a Spec refers to must not change afterwards: the set keeps parts of it.
//
// Build adds what is wrong to problems. It returns nil if one of them, also of
// those that the source has added, is more than a warning. A part that is Broken
// is an error of its own if there is no other.
func Build(spec *Spec, problems *Problems) *Set {
	return build(&builder{set: &Set{}}, spec, problems)
}

// Rebuild is Build for a source that changes a part of its rules at a time. What old was made of
// and spec has too, as the same *RuleSpec at the top of the same domain, is not compiled again:
// both sets have its rules, with the same ID. So a change costs what has changed. Old is nil the
// first time. Problems are those of all rules, as from Build.
func Rebuild(old *Set, spec *Spec, problems *Problems) *Set {
	b := &builder{set: &Set{line: new(int)}, rebuilds: true}
	if old != nil { // the new set has about as many rules
		if b.old, b.branches = old, old.byRule(); b.branches != nil {
			b.set.from = old.line
		}
		b.set.rules = make([]*Rule, 0, len(old.rules)+maxIdle)
		b.set.branches = make([]branch, 0, len(old.branches)+1)
	}
	return build(b, spec, problems)
}

func build(b *builder, spec *Spec, problems *Problems) *Set {
	b.Problems = problems
	b.set.domains, b.set.hash = make(map[string]*domain, len(spec.Domains)), spec.Hash
	b.domains, b.limits = map[string]*domainBuilder{}, map[limit.Spec]*limit.Limit{}
	if spec.Hash >= 1<<52 {
		b.at(Place{}, "", isError, "the hash %d of the rules is not below 2^52", spec.Hash)
	}
	for _, d := range spec.Domains {
		b.domain(d)
	}
	b.checkReplaces()
	for _, d := range b.order {
		made := &domain{name: d.name, root: b.level(&d.top, d.way()), resources: b.resourceIndex(d)}
		if d.absent != nil {
			b.set.absent = absentOf(d.absent, b.set.rules, d.name)
			continue
		}
		b.set.domains[d.name] = made
		if b.set.first == nil {
			b.set.first = made
		}
	}
	if b.broken != nil && !b.Failed() {
		b.Add(*b.broken)
	}
	if b.Failed() {
		return nil
	}
	b.number()
	return b.set
}

// domain reads one part of a domain.
func (b *builder) domain(spec *DomainSpec) {
	if spec == nil {
		b.at(Place{}, "", isError, "a domain is missing")
		return
	}
	if problem := wrongText("domain", spec.Name, maxDomain); problem != "" && !spec.Broken {
		b.at(spec.Place, "", isError, "%s", problem)
	} else if spec.Name == "" && !spec.Broken {
		b.at(spec.Place, "", isError, "the domain is empty")
	}
	d := b.domains[spec.Name]
	if apart := (&domainBuilder{name: spec.Name}); b.isBroken(spec.Broken, spec.Place, apart.way()) {
		d = apart
	} else if d == nil {
		d = apart
		b.domains[spec.Name] = d
		b.order = append(b.order, d)
	}
	d.absent = spec.Absent
	b.agree(d, &d.cutParams, spec.CutParams)
	b.agree(d, &d.asSent, spec.AsSent)
	b.agree(d, &d.anyCase, spec.AnyCase)
	b.rules(spec.Rules, d.way(), &d.top)
	for _, r := range spec.Resources {
		if r == nil {
			b.at(Place{}, d.way().String(), isError, "a resource is missing")
			continue
		}
		b.resource(r, d)
	}
}

// agree takes over what a part of a domain says of all requests. All parts must say the same.
func (b *builder) agree(d *domainBuilder, all **Switch, s *Switch) {
	switch {
	case s == nil:
	case *all != nil && (*all).On != s.On:
		b.at(s.Place, d.way().String(), isError, "%s contradicts this; a domain treats all its requests alike", *all)
	default:
		*all = s
	}
}
