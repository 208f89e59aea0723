package descriptors

// Build compiles the rules of a source, whatever it read them from. It checks
// what concerns several rules: that they can be told apart, that the limits
// exist that others replace, that matching stays fast. What a value may be, the
// source checks when it makes it (limit.New, [ParsePath]).
//
// Build adds what is wrong to problems. It returns nil if one of them, also of
// those that the source has added, is more than a warning.
func Build(spec *Spec, problems *Problems) *Set {
	b := &builder{
		Problems: problems,
		set:      &Set{domains: make(map[string]*domain, len(spec.Domains)), hash: spec.Hash},
		domains:  map[string]*domainBuilder{},
	}
	for _, d := range spec.Domains {
		b.domain(d)
	}
	b.checkReplaces()
	for _, d := range b.order {
		b.set.domains[d.name] = &domain{root: b.level(&d.top, d.way()), resources: b.resourceIndex(d)}
	}
	if b.Failed() {
		return nil
	}
	return b.set
}

// domain reads one part of a domain.
func (b *builder) domain(spec *DomainSpec) {
	d := b.domains[spec.Name]
	if spec.Name == "" && !spec.Broken {
		b.at(spec.Place, "", false, "the domain is empty")
	}
	if d == nil || spec.Broken {
		d = &domainBuilder{name: spec.Name}
		if !spec.Broken {
			b.domains[spec.Name] = d
			b.order = append(b.order, d)
		}
	}
	b.matrix(d, spec.Matrix)
	b.rules(spec.Rules, d.way(), &d.top)
	for _, r := range spec.Resources {
		b.resource(r, d)
	}
}

func (b *builder) matrix(d *domainBuilder, m *MatrixSpec) {
	if m != nil && d.matrix != nil && d.matrix.Ignore != m.Ignore {
		b.at(m.Place, d.way().String(), false, "%s says otherwise; all requests of a domain are treated alike", d.matrix)
		return
	}
	if m != nil {
		d.matrix = m
	}
}
