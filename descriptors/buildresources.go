package descriptors

import (
	"fmt"

	"github.com/headgate-rls/headgate/internal/spell"
	"github.com/headgate-rls/headgate/limit"
)

const (
	// maxRegexes bounds the path patterns of a domain, which are tried one by
	// one.
	maxRegexes = 1000
	// maxAlike bounds the resources with the same path, which are tried one by
	// one as well.
	maxAlike = 1000
)

// resource reads one resource of a domain.
func (b *builder) resource(spec *ResourceSpec, d *domainBuilder) {
	path := func() string { return TreePath(d.way().String(), spec.Label, "") }
	b.references(&spec.Body, d, path)
	res := &resource{
		method: spec.Method, Path: spec.Path, order: len(d.resources), place: spec.Place,
		spec: Resource{spec.Method, spec.Path.text, &spec.Matcher},
	}
	counter, ok := b.counterName(spec, d, res, path)
	if !ok || spec.Broken {
		return
	}
	var err error
	if res.criteria, err = spec.Matcher.criteria(&spec.Path); err != nil {
		b.at(spec.Place, path(), false, "%v", err)
		return
	}
	key, ok := b.resourceKey(spec, d, res, path)
	if !ok {
		return
	}
	res.rule = b.newRule(&spec.Body, d)
	res.rule.Path, res.rule.Resource, res.rule.class = key, key, spec.Path.class
	if counter == "" {
		counter = "counter:" + key
	}
	if len(spec.Limits) > 0 || spec.Concurrency != nil {
		res.rule.fixed = resourceGroup(d.name, counter)
	}
	d.resources = append(d.resources, res)
}

// counterName returns what a resource's counters are named by if it has a name:
// they stay when its method, path or criteria change.
func (b *builder) counterName(spec *ResourceSpec, d *domainBuilder, res *resource, path func() string) (counter string, ok bool) {
	if spec.Name == "" {
		return "", true
	}
	if first := d.names[spec.Name]; first != nil {
		b.at(spec.NamePlace, path(), false, "another resource is called %q, in %s:%d; requests to both would count together",
			spec.Name, first.place.File, first.place.Line)
		return "", false
	}
	if d.names == nil {
		d.names = map[string]*resource{}
	}
	d.names[spec.Name] = res
	return "name:" + spec.Name, true
}

// resourceKey makes the resource's key, and sees to it that no other has it.
func (b *builder) resourceKey(spec *ResourceSpec, d *domainBuilder, res *resource, path func() string) (string, bool) {
	key, err := ResourceKey(res.spec.Method, res.spec.Name, res.spec.Matcher, spec.HashLength)
	if err != nil {
		b.at(res.place, path(), false, "%v", err)
		return "", false
	}
	if first := d.keys[key]; first != nil {
		if sameResource(first.spec, res.spec) {
			b.at(res.place, path(), false, "duplicate resource %s, first in %s:%d", key, first.place.File, first.place.Line)
		} else {
			b.at(res.place, path(), false, "the resource has the same key %s as a different one in %s:%d; set a larger hashLength",
				key, first.place.File, first.place.Line)
		}
		return "", false
	}
	if d.keys == nil {
		d.keys = map[string]*resource{}
	}
	d.keys[key] = res
	return key, true
}

// resourceGroup names the counters of a resource. Groups of descriptors have
// an odd number of parts, the domain and pairs, so none is the same.
func resourceGroup(domain, counter string) string {
	b := limit.AppendPart(nil, domain)
	return limit.MakeGroup(limit.AppendPart(b, counter))
}

// resourceIndex compiles the resources of a domain, nil if there are none.
func (b *builder) resourceIndex(d *domainBuilder) *resourceIndex {
	if len(d.resources) == 0 {
		return nil
	}
	b.sameRequests(d)
	ix := &resourceIndex{
		all:        d.resources,
		operations: map[string][]*resource{}, exact: map[string][]*resource{},
		templates: &segments{}, prefixes: &segments{},
		params: map[string]bool{}, cutParams: d.matrix != nil && d.matrix.Ignore,
	}
	for _, r := range d.resources {
		if ix.cutParams && r.class != classRegex && r.class != classOperation && hasParams(r.spec.Name) {
			b.atResource(r, false, "path %q: %s says that paths are compared without what follows a semicolon", spell.Short(r.spec.Name), d.matrix)
		}
		ix.add(r)
	}
	ix.sort()
	ix.lists(func(list []*resource) {
		if len(list) > maxAlike {
			b.atResource(list[maxAlike], false, "more than %d resources have this path and differ only in method and criteria; "+
				"matching them would be slow", maxAlike)
		}
	})
	if len(ix.regexes) > maxRegexes {
		b.atResource(ix.regexes[maxRegexes], false, "the domain has more than %d regular expressions for paths; matching them would be slow", maxRegexes)
	}
	if n := len(matchedHeaders(d.resources)); n > maxMatchedHeaders {
		b.atResource(d.resources[0], false, "the domain's resources match on %d different headers; a request carries at most %d", n, maxMatchedHeaders)
	}
	return ix
}

// sameRequests warns of rules that can never apply.
func (b *builder) sameRequests(d *domainBuilder) {
	first := map[string]*resource{}
	for _, r := range d.resources {
		encoding, _ := r.spec.Matcher.encode()
		id := parts(r.method, fmt.Sprint(r.class), r.shape(), string(encoding))
		if o := first[id]; o != nil {
			b.atResource(r, true, "the resource never applies: the earlier %s in %s:%d matches the same requests",
				o.rule.Resource, o.place.File, o.place.Line)
			continue
		}
		first[id] = r
	}
	for _, s := range d.top.specs {
		if s.Key == methodEntry {
			b.unreachable(s, d)
		}
	}
}

// unreachable warns of rules below s that match what resources match.
func (b *builder) unreachable(s *RuleSpec, d *domainBuilder) {
	for _, below := range s.Rules {
		if below.Key == pathEntry {
			w := &way{d.way(), d, s, 1}
			b.below(w, below, true, "the rule never applies: the domain has resources, and descriptors that begin with %s and %s are matched against those",
				methodEntry, pathEntry)
		}
	}
}

// atResource reports a problem of a resource that has its key.
func (b *builder) atResource(r *resource, warning bool, format string, args ...any) {
	b.at(r.place, TreePath(r.rule.Domain, r.rule.Resource, ""), warning, format, args...)
}
