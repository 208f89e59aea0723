package rulefile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"sort"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/yamlfile"
)

// MaxSourceBytes bounds a [Source]: Load refuses larger ones.
const MaxSourceBytes = 16 << 20

// A Source is one file of rules.
type Source struct {
	Name  string // shown in problems
	Data  []byte
	Owner *Owner // nil: the source may have every domain
	// Absent, if there are any, are domains without rules. The source's first rule answers for them: it matches every
	// descriptor.
	Absent descriptors.DomainPatterns
}

// Load compiles the rules of all sources. It returns every problem of the
// whole set, ordered by place; if one of them is more than a warning, the Set
// is nil.
func Load(sources []Source, opt Options) (*descriptors.Set, []descriptors.Problem) {
	set, problems, _ := LoadDomains(sources, opt)
	return set, problems
}

// LoadDomains is Load, and also returns the domain of each source: "" if it
// cannot be read.
func LoadDomains(sources []Source, opt Options) (*descriptors.Set, []descriptors.Problem, []string) {
	l := read(sources, opt)
	return l.build(), l.Sorted(), l.names
}

// LoadSpec is Load, and also returns the rules as they were read.
func LoadSpec(sources []Source, opt Options) (*descriptors.Set, *descriptors.Spec, []descriptors.Problem) {
	l := read(sources, opt)
	return l.build(), &l.spec, l.Sorted()
}

// read reads the rules of all sources.
func read(sources []Source, opt Options) *loader {
	l := &loader{opt: opt, begins: "a domain", domains: map[string]*firstFile{}}
	for i := range sources {
		l.named = ""
		l.source(&sources[i])
		l.names = append(l.names, l.named)
	}
	l.passManifests()
	l.spec.Hash = hashOf(sources)
	return l
}

// build compiles what was read. What limits nothing is a warning of rules that are good otherwise: a file that was
// cut off has such rules, too.
func (l *loader) build() *descriptors.Set {
	set := descriptors.Build(&l.spec, &l.Problems)
	if set != nil {
		l.Add(l.exempt...)
	}
	return set
}

// hashOf returns a number of 52 bits, which a metric can hold, that stands for
// what the sources say, whatever they are called and in whatever order.
func hashOf(sources []Source) uint64 {
	sums := make([][sha256.Size]byte, len(sources))
	for i := range sources {
		sums[i] = sha256.Sum256(sources[i].Data)
	}
	sort.Slice(sums, func(i, j int) bool { return bytes.Compare(sums[i][:], sums[j][:]) < 0 })
	h := sha256.New()
	for i := range sums {
		h.Write(sums[i][:])
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) >> 12
}

// source reads one source's domain and rules.
func (l *loader) source(s *Source) {
	l.file, l.owner, l.stop = s.Name, s.Owner, false
	if len(s.Data) > MaxSourceBytes {
		l.errorf(nil, nil, "the file has %d bytes; at most %d are read", len(s.Data), MaxSourceBytes)
		return
	}
	rest, lists := yamlfile.Split(s.Data, "descriptors", "resources")
	root, ok := l.parse(rest)
	if ok && !withoutValues(root, lists) {
		lists = nil
		root, ok = l.parse(s.Data)
	}
	if !ok || l.manifest(root) {
		return
	}
	l.budget = len(s.Data) + maxExpansion
	f, ok := l.top(root)
	if !ok {
		return
	}
	name, ok := l.domain(root, f)
	// still report what is wrong with its rules
	spec := &descriptors.DomainSpec{Name: name, Place: l.place(root), Broken: !ok, Absent: s.Absent}
	if n := f.get("domain"); n != nil {
		spec.Place = l.place(n)
	}
	l.spec.Domains = append(l.spec.Domains, spec)
	d := &twig{key: name}
	spec.CutParams = l.switchOf(f, "matrix_parameters", "keep", "ignore")
	spec.AsSent, spec.AnyCase = l.paths(f)
	l.items(f.get("descriptors"), lists["descriptors"], d, "descriptors", func(n *yaml.Node) {
		if r := l.rule(n, d); r != nil {
			spec.Rules = append(spec.Rules, r)
		}
	})
	l.items(f.get("resources"), lists["resources"], d, "resources", func(n *yaml.Node) {
		if r := l.resource(n, d); r != nil {
			spec.Resources = append(spec.Resources, r)
		}
	})
	if len(spec.Rules)+len(spec.Resources) == 0 {
		l.exempts(root, d, "the domain has no descriptors and no resources, so nothing in it is limited")
	}
}

// withoutValues reports whether a mapping has the keys of lists, without values: else they were part of some text.
func withoutValues(root *yaml.Node, lists map[string]*yamlfile.List) bool {
	found := 0
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		if lists[root.Content[i].Value] != nil && isNull(root.Content[i+1]) {
			found++
		}
	}
	return found == len(lists)
}

// items calls each for the elements of sequence n, or, where they were taken out of the file, for those of apart.
func (l *loader) items(n *yaml.Node, apart *yamlfile.List, t *twig, what string, each func(*yaml.Node)) {
	switch {
	case apart != nil:
		wrong := apart.Each(func(n *yaml.Node) { l.list(n, t, what, each) })
		if wrong != nil {
			l.Add(descriptors.Problem{File: l.file, Line: wrong.Line, Message: wrong.Message})
		}
	case !isNull(n):
		l.list(n, t, what, each)
	}
}

// exempts notes what limits nothing. The resources of a mock server mostly do not.
func (l *loader) exempts(n *yaml.Node, t *twig, what string) {
	if l.style.plugin == "" && len(l.exempt) < maxExempt {
		l.exempt = append(l.exempt, descriptors.Problem{File: l.file, Line: n.Line, Col: n.Column, Path: t.path(),
			Message: what, Warning: true})
	}
}

// exemptsAll says what a rule without a limit does.
const exemptsAll = "no limit: all that matches passes and is not counted; if it should, write " +
	"rate_limit: {unlimited: true}"

// parse returns the top mapping of the only document in data.
func (l *loader) parse(data []byte) (*yaml.Node, bool) {
	doc, more, wrong := yamlfile.Decode(data)
	switch {
	case wrong != nil:
		l.Add(descriptors.Problem{File: l.file, Line: wrong.Line, Message: wrong.Message})
		return nil, false
	case isNull(doc):
		l.errorf(nil, nil, "the file is empty; it must start with %s", l.begins)
		return nil, false
	case !isNull(more):
		l.errorf(more, nil, "a second YAML document; put it into another file")
		return nil, false
	}
	return doc.Content[0], true
}

// domain returns the name of the file's domain, and whether it can be used. Files of a plugin that name none share one.
func (l *loader) domain(root *yaml.Node, f fields) (name string, ok bool) {
	n := f.get("domain")
	implied := n == nil && l.style.plugin != ""
	switch {
	case implied:
		name = defaultDomain
	case n == nil:
		l.errorf(root, nil, "the file has no domain; start it with `domain: NAME`")
		return "", false
	default:
		if name, ok = l.text(n, nil, "domain"); !ok {
			return "", false
		}
	}
	if l.owner != nil {
		if refusal := l.owner.refusal(name); refusal != "" {
			l.errorf(cmp.Or(n, root), &twig{key: name}, "%s", refusal)
			return "", false
		}
	}
	l.named = name
	first := l.domains[name]
	switch {
	case first == nil:
		l.domains[name] = &firstFile{l.file, implied}
	case l.opt.MergeDomains || implied && first.implied:
	case implied:
		l.errorf(root, &twig{key: name}, "the file names no domain, and the default %q is already in %s; name another, "+
			"or allow merging domains (--merge-domains)", name, first.name)
		return "", false
	default:
		l.errorf(n, &twig{key: name}, "domain %q is already in %s; put its rules into one file, or allow merging domains "+
			"(--merge-domains; headgate ratelimit: MERGE_DOMAIN_CONFIG=true)", name, first.name)
		return "", false
	}
	return name, true
}

// defaultDomain is the domain of files with a plugin that name none.
const defaultDomain = "default"
