package descriptors

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
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

// Label names the resource in problems: METHOD:PATH, or METHOD:OPERATION.
func (r *ResourceSpec) Label() string {
	method, name := strings.ToUpper(r.Method), cmp.Or(r.Path, r.Operation)
	if r.SOAP {
		method = cmp.Or(method, "POST")
	}
	return cmp.Or(method, "*") + ":" + spell.Short(cmp.Or(name, "*"))
}

// A resourcePath is where in its domain a resource is, for problems.
type resourcePath struct {
	domain *domainBuilder
	spec   *ResourceSpec
}

func (p resourcePath) String() string { return TreePath(p.domain.way().String(), p.spec.Label(), "") }

// resource reads one resource of a domain.
func (b *builder) resource(spec *ResourceSpec, d *domainBuilder) {
	path := resourcePath{d, spec}
	if !b.next(spec.Place, path) {
		return
	}
	at := &spot{b, spec.Place, spec.Fields, path}
	terms := at.terms(&spec.Body)
	b.references(&spec.Body, d, path)
	if spec.MaxKeys > 0 && len(spec.By) == 0 {
		at.errorf("max_keys", "max_keys needs by in the same resource: without it the resource has one counter")
	}
	res := &resource{order: len(d.resources), place: spec.Place}
	var plain Matcher
	if !b.Clean(func() {
		if !at.isBroken(spec.Broken) {
			res.method, res.pathRule = at.method(spec), at.pathOf(spec)
			res.criteria, plain = at.criteria(&spec.Matcher, &res.pathRule)
			res.by, res.except = at.countBy(spec.By, &res.pathRule), at.except(spec.Except)
		}
	}) {
		return
	}
	res.asks = &plain
	counter, ok := b.counterName(spec, d, res, at)
	if !ok || spec.Broken {
		return
	}
	key, ok := b.resourceKey(spec, d, res, at)
	if !ok {
		return
	}
	res.rule = b.newRule(&spec.Body, terms, d)
	res.rule.Path, res.rule.Resource, res.rule.class = key, key, res.class
	counter = cmp.Or(counter, "counter:"+key)
	switch {
	case len(spec.Limits) == 0 && spec.Concurrency == nil:
	case len(res.by) > 0:
		res.rule.countBy(resourceCounter(d.name, counter), res.by)
	default:
		res.rule.fixed = limit.MakeGroup(resourceCounter(d.name, counter))
	}
	d.resources = append(d.resources, res)
}

// methods are those of RFC 9110 and RFC 5789. Others may be used, too.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// method checks a resource's method and returns it in capitals; "" is any.
func (s *spot) method(spec *ResourceSpec) string {
	method := strings.ToUpper(spec.Method)
	if method == "*" {
		method = ""
	}
	if spec.SOAP {
		if method != "" && method != "POST" {
			s.errorf("method", "SOAP requests are POST, not %s", spell.Short(method))
		}
		return "POST"
	}
	if !s.text("method", "method", method, maxName) {
		return ""
	}
	for _, c := range []byte(method) {
		if (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			s.errorf("method", "unknown method %q; it must be one such as GET, or * for any", spell.Short(spec.Method))
			return ""
		}
	}
	if meant := spell.Nearest(method, methods); meant != "" && meant != method {
		s.warnf("method", "method %q is not one of HTTP's; did you mean %s?", spell.Short(method), meant)
	}
	return method
}

// pathOf checks which paths or operations a resource is for.
func (s *spot) pathOf(spec *ResourceSpec) (p pathRule) {
	switch {
	case spec.SOAP && spec.Path != "":
		s.errorf("path", "a SOAP resource is found by its operation; it has no path")
	case spec.SOAP:
		return s.operation(spec.Operation)
	case spec.Operation != "":
		s.errorf("operation", "only a SOAP resource has an operation")
	case s.text("path", "path", spec.Path, maxResourceName):
		return s.parsePath(spec.Path)
	}
	return p
}

func (s *spot) operation(name string) pathRule {
	if name == "*" {
		name = ""
	}
	if s.text("operation", "operation", name, maxKey) && strings.ContainsAny(name, "/#: \t\"") {
		s.errorf("operation", "operation %q must be the last part of the SOAPAction: without /, #, :, quotes and spaces",
			spell.Short(name))
	}
	return pathRule{class: classOperation, text: name, name: name}
}

// counterName returns what a resource's counters are named by if it has a name:
// they stay when its method, path or criteria change.
func (b *builder) counterName(spec *ResourceSpec, d *domainBuilder, res *resource, at *spot) (counter string, ok bool) {
	if spec.Name == "" {
		return "", true
	}
	if !at.name(spec.Name) {
		return "", false
	}
	if first := d.names[spec.Name]; first != nil {
		at.errorf("name", "another resource is called %q, in %s:%d; requests to both would count together",
			spec.Name, first.place.File, first.place.Line)
		return "", false
	}
	if d.names == nil {
		d.names = map[string]*resource{}
	}
	d.names[spec.Name] = res
	return "name:" + spec.Name, true
}

// resourceKey makes the resource's key, and checks that no other resource has it.
func (b *builder) resourceKey(spec *ResourceSpec, d *domainBuilder, res *resource, at *spot) (string, bool) {
	key, err := resourceKey(res.method, res.text, res.asks, spec.HashLength)
	if err != nil {
		at.errorf("", "%v", err)
		return "", false
	}
	if first := d.keys[key]; first != nil {
		if sameResource(first, res) {
			at.errorf("", "duplicate resource %s, first in %s:%d", key, first.place.File, first.place.Line)
		} else {
			at.errorf("", "the resource has the same key %s as a different one in %s:%d; set a larger hashLength",
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

// resourceCounter encodes what the groups of a resource begin with. Groups of descriptors have
// an odd number of parts, the domain and pairs, so none is the same.
func resourceCounter(domain, counter string) []byte {
	return limit.AppendPart(limit.AppendPart(nil, domain), counter)
}

// countBy has the requests to a resource be counted by values, each under a group that begins alike.
func (r *Rule) countBy(begins []byte, by []*counting) {
	r.begins, r.anyKey = string(begins), true
	for i := range by {
		r.By = append(r.By, by[i].name)
		r.others = append(r.others, Entry{by[i].name, Others})
	}
}

// resourceIndex compiles the resources of a domain, nil if there are none.
func (b *builder) resourceIndex(d *domainBuilder) *resourceIndex {
	if len(d.resources) == 0 {
		return nil
	}
	if d.anyCase.on() {
		for _, r := range d.resources {
			r.foldCase()
		}
	}
	b.sameRequests(d)
	ix := &resourceIndex{
		all:        d.resources,
		operations: map[string][]*resource{}, exact: map[string][]*resource{},
		templates: &segments{}, prefixes: &segments{},
		params: map[string]bool{}, cutParams: d.cutParams.on(), asSent: d.asSent.on(), anyCase: d.anyCase.on(),
	}
	for _, r := range d.resources {
		if ix.cutParams && r.class != classRegex && r.class != classOperation && hasParams(r.text) {
			b.atResource(r, isError, "path %q: %s says that paths are compared without what follows a semicolon",
				spell.Short(r.text), d.cutParams)
		}
		ix.add(r)
	}
	ix.sort()
	ix.lists(func(list []*resource) {
		if len(list) > maxAlike {
			b.atResource(list[maxAlike], isError, "more than %d resources have this path and differ only in method and "+
				"criteria; matching them would be slow", maxAlike)
		}
	})
	if len(ix.regexes) > maxRegexes {
		b.atResource(ix.regexes[maxRegexes], isError,
			"the domain has more than %d regular expressions for paths; matching them would be slow", maxRegexes)
	}
	if n := len(matchedHeaders(d.resources)) + len(keysOf(d.resources)); n > maxMatchedHeaders {
		b.atResource(d.resources[0], isError,
			"the domain's resources look at %d different headers and other values; a request carries at most %d", n,
			maxMatchedHeaders)
	}
	return ix
}

// sameRequests warns of rules that can never apply.
func (b *builder) sameRequests(d *domainBuilder) {
	first := map[string]*resource{}
	for _, r := range d.resources {
		id := parts(r.method, fmt.Sprint(r.class), r.shape(), string(r.asks.encode()))
		if o := first[id]; o != nil {
			b.atResource(r, isWarning, "the resource never applies: the earlier %s in %s:%d matches the same requests",
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
			w := d.way().to(s)
			b.below(&w, below, isWarning, "the rule never applies: the domain has resources, and descriptors that begin with "+
				"%s and %s are matched against those",
				methodEntry, pathEntry)
		}
	}
}

// atResource reports a problem of a resource that has its key.
func (b *builder) atResource(r *resource, warning bool, format string, args ...any) {
	b.at(r.place, TreePath(r.rule.Domain, r.rule.Resource, ""), warning, format, args...)
}
