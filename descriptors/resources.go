package descriptors

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/internal/spell"
	"github.com/headgate-rls/headgate/limit"
)

const (
	defaultDomain = "default"

	// maxRegexes bounds the path patterns of a domain, which are tried one by
	// one.
	maxRegexes = 1000
	// maxAlike bounds the resources with the same path, which are tried one by
	// one as well.
	maxAlike = 1000
)

// A fileStyle is what a file's top level says of its resources.
type fileStyle struct {
	plugin     string // "rest" or "soap"; empty in files of our own
	hashLength int
}

// A pathClass is a kind of path, in order of precedence.
type pathClass uint8

const (
	classOperation pathClass = iota
	classExact
	classTemplate
	classPrefix
	classRegex
	classAny
)

var classNames = []string{"operation", "exact", "template", "prefix", "regex", "any"}

func (c pathClass) String() string { return classNames[c] }

// A resource is a rule for the requests with a method and path, or SOAP
// operation, that meet its criteria.
type resource struct {
	rule   *Rule
	method string // "" for any
	class  pathClass
	name   string // path or operation in normal form, without the class's marks
	re     *regexp.Regexp
	prefix string // what every match of re starts with
	start  bool   // re matches at the start of a path only
	criteria
	order int

	from *twig
	spec Resource // what its key is made of
}

// readStyle reads the file's top level but for its domain and rules.
func (l *loader) readStyle(f fields) {
	l.style = fileStyle{hashLength: l.opt.HashLength}
	if n := f.get("plugin"); n != nil {
		plugins := []string{"rest", "soap"}
		if i, ok := l.word(n, nil, "plugin", plugins...); ok {
			l.style.plugin = plugins[i]
		}
	}
	if n := f.get("hashLength"); n != nil {
		length, _ := l.integer(n, nil, "hashLength", 1, maxHashLength)
		l.style.hashLength = int(length)
	}
	if n := f.get("wsdlFile"); n != nil && f.get("plugin") == nil {
		l.errorf(n, nil, "wsdlFile belongs in files with plugin: soap, where it is ignored")
	}
}

// A matrixMode says what becomes of matrix parameters in the paths of a
// domain's requests, and where that is said.
type matrixMode struct {
	ignore bool
	file   string
	line   int
}

func (m *matrixMode) String() string {
	return fmt.Sprintf("matrix_parameters in %s:%d", m.file, m.line)
}

// matrixMode reads what the file says of its domain's matrix parameters.
func (l *loader) matrixMode(f fields, d *twig) {
	n := f.get("matrix_parameters")
	if n == nil {
		return
	}
	i, ok := l.word(n, nil, "matrix_parameters", "keep", "ignore")
	if !ok {
		return
	}
	mode := &matrixMode{i == 1, l.file, n.Line}
	if d.matrix != nil && d.matrix.ignore != mode.ignore {
		l.errorf(n, d, "%s says otherwise; all requests of a domain are treated alike", d.matrix)
		return
	}
	d.matrix = mode
}

// resource reads one entry of resources.
func (l *loader) resource(n *yaml.Node, d *twig) {
	if l.nodes++; l.nodes > maxRules {
		if !l.stop {
			l.errorf(n, d, "more than %d rules", maxRules)
		}
		l.stop = true
		return
	}
	t := &twig{parent: d, depth: 1, file: l.file, line: n.Line, col: n.Column, key: "resource"}
	if n.Kind == yaml.MappingNode {
		t.key = l.label(n)
	}
	f, ok := l.fields(n, levelResource, t)
	if !ok {
		return
	}
	res := &resource{rule: &Rule{Domain: d.key}, order: len(d.resources), from: t}
	named := l.clean(func() {
		l.resourceName(n, f, t, res)
		l.matcher(f, t, res)
	})
	r := res.rule
	l.resourceRule(n, f, t, r)
	counter, ok := l.counterName(f.get("name"), d, res)
	if !named || !ok || !l.resourceKey(n, d, res) {
		return
	}
	if counter == "" {
		counter = "counter:" + r.Resource
	}
	if len(r.Limits) > 0 || r.Concurrency != nil {
		r.fixed = resourceGroup(d.key, counter)
	}
	t.key = r.Resource
	l.finish(t, r)
	r.matched = res
	d.resources = append(d.resources, res)
}

// label names a resource in problems, before its key is known.
func (l *loader) label(n *yaml.Node) string {
	name := l.peek(n, "path", maxResourceName)
	if name == "" {
		name = l.peek(n, "operation", maxResourceName)
	}
	method := l.peek(n, "method", maxName)
	if method == "" && l.style.plugin == "soap" {
		method = "POST"
	}
	return strings.ToUpper(orStar(method)) + ":" + short(orStar(name))
}

// resourceRule reads what a resource limits.
func (l *loader) resourceRule(n *yaml.Node, f fields, t *twig, r *Rule) {
	l.modes(f, t, r)
	if l.style.plugin != "" {
		// What a mock would answer is nothing to us.
		f = slices.DeleteFunc(f, func(f field) bool { return f.name == "response" })
	}
	l.policy(f, t, r)
	l.limitsOf(n, f, t, r)
	if r.raw {
		l.errorf(f.get("limits"), t, "counter: value needs the value of an entry; a resource has one counter for all its requests")
	}
	l.concurrencyOf(f, t, r)
	l.pointless(f, t, r, true)
}

// resourceKey makes the resource's key, and sees to it that no other has it.
func (l *loader) resourceKey(n *yaml.Node, d *twig, res *resource) bool {
	key, err := ResourceKey(res.spec.Method, res.spec.Name, res.spec.Matcher, l.style.hashLength)
	if err != nil {
		l.errorf(n, res.from, "%v", err)
		return false
	}
	if first := d.keys[key]; first != nil {
		if sameResource(first.spec, res.spec) {
			l.errorf(n, res.from, "duplicate resource %s, first in %s:%d", key, first.from.file, first.from.line)
		} else {
			l.errorf(n, res.from, "the resource has the same key %s as a different one in %s:%d; set a larger hashLength",
				key, first.from.file, first.from.line)
		}
		return false
	}
	if d.keys == nil {
		d.keys = map[string]*resource{}
	}
	d.keys[key] = res
	res.rule.Resource = key
	return true
}

// counterName returns what a resource's counters are named by if it has a name:
// they stay when its method, path or criteria change.
func (l *loader) counterName(n *yaml.Node, d *twig, res *resource) (counter string, ok bool) {
	name := ""
	if ok = l.clean(func() { name = l.name(n, res.from) }); name == "" {
		return "", ok
	}
	if first := d.names[name]; first != nil {
		l.errorf(n, res.from, "another resource is called %q, in %s:%d; requests to both would count together", name, first.from.file, first.from.line)
		return "", false
	}
	if d.names == nil {
		d.names = map[string]*resource{}
	}
	d.names[name] = res
	return "name:" + name, true
}

// resourceGroup names the counters of a resource. Groups of descriptors have
// an odd number of parts, the domain and pairs, so none is the same.
func resourceGroup(domain, counter string) string {
	b := limit.AppendPart(nil, domain)
	return limit.MakeGroup(limit.AppendPart(b, counter))
}

// whichRequests are the fields of a resource that say what requests it is for.
var whichRequests = levelResource.keys[:slices.Index(levelResource.keys, "concurrency")]

// resourceName reads method, path and operation.
func (l *loader) resourceName(n *yaml.Node, f fields, t *twig, res *resource) {
	if m := f.get("method"); m != nil {
		res.method = l.method(m, t)
	}
	path, operation := f.get("path"), f.get("operation")
	soap := operation != nil || l.style.plugin == "soap" ||
		path == nil && (f.get("soapAction") != nil || f.get("binding") != nil)
	switch {
	case l.style.plugin == "rest" && operation != nil:
		l.errorf(operation, t, "operation belongs in a file with plugin: soap")
	case soap && path != nil:
		l.errorf(path, t, "a SOAP resource is found by its operation; it has no path")
	case soap:
		l.operation(f, operation, t, res)
	case path == nil || isNull(path):
		if !slices.ContainsFunc(f, func(f field) bool { return slices.Contains(whichRequests, f.name) }) {
			l.errorf(n, t, "the resource has no path and no criteria; write path: '*' if it is for every request")
		}
		res.class = classAny
	default:
		l.path(path, t, res)
	}
	res.spec.Method = res.method
}

func (l *loader) operation(f fields, n *yaml.Node, t *twig, res *resource) {
	res.class = classOperation
	if res.method != "" && res.method != "POST" {
		l.errorf(f.get("method"), t, "SOAP requests are POST, not %s", res.method)
	}
	res.method = "POST"
	if n == nil || isNull(n) {
		return
	}
	s, _ := l.text(n, t, "operation", maxKey)
	if s == "*" {
		return
	}
	if strings.ContainsAny(s, "/#: \t\"") {
		l.errorf(n, t, "operation %q must be the last part of the SOAPAction: without /, #, :, quotes and spaces", short(s))
	}
	res.name, res.spec.Name = s, s
}

// method reads an HTTP method; "" is any.
func (l *loader) method(n *yaml.Node, t *twig) string {
	s, _ := l.text(n, t, "method", maxName)
	if s == "*" || s == "" {
		return ""
	}
	for _, c := range []byte(s) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '_' {
			l.errorf(n, t, "method %q is no HTTP method; it must be one such as GET, or * for any", short(s))
			return ""
		}
	}
	s = strings.ToUpper(s)
	if meant := spell.Nearest(s, methods); meant != "" && meant != s {
		l.warnf(n, t, "method %q is not one of HTTP's; did you mean %s?", short(s), meant)
	}
	return s
}

// methods are those of RFC 9110 and RFC 5789. Others may be used, too.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// path reads a path: its class is how it is written.
func (l *loader) path(n *yaml.Node, t *twig, res *resource) {
	s, ok := l.text(n, t, "path", maxResourceName)
	if !ok {
		return
	}
	if s == "" || s == "*" {
		res.class = classAny
		return
	}
	res.spec.Name = s
	if strings.HasPrefix(s, "~") {
		l.pattern(n, t, s[1:], res)
		return
	}
	if s[0] != '/' {
		l.errorf(n, t, "path %q must start with a slash, or be ~ and a regular expression, or *", short(s))
		return
	}
	res.class = classExact
	if p, ok := strings.CutSuffix(s, "/*"); ok {
		res.class, s = classPrefix, p
	}
	if strings.Contains(s, "*") {
		l.errorf(n, t, "path %q: a * stands for the rest of the path, so it may only come last and after a slash; "+
			"elsewhere use {name} for a segment, or ~ and a regular expression", short(s))
		return
	}
	if s == "" {
		return // of "/*"
	}
	if res.name = normalPath(s, false); countSegments(res.name) != countSegments(s) {
		l.errorf(n, t, "path %q is compared without empty, \".\" and \"..\" segments and without a slash at the end; write it as %s", short(s), res.name)
		return
	}
	params := l.templateParams(n, t, res.name)
	if params != nil && res.class == classExact {
		res.class = classTemplate
	}
}

func countSegments(path string) int {
	if path == "/" {
		return 0
	}
	return strings.Count(path, "/")
}

// templateParams returns the parameter's name for each segment of path that is
// one, "" for the others; nil if there are none.
func (l *loader) templateParams(n *yaml.Node, t *twig, path string) []string {
	if !strings.ContainsAny(path, "{}") {
		return nil
	}
	var params []string
	for rest := path; rest != ""; {
		var segment string
		segment, rest = cutSegment(rest)
		name, ok := paramName(segment)
		switch {
		case ok && slices.Contains(params, name):
			l.errorf(n, t, "path %q has two parameters called %s", short(path), name)
		case !ok && strings.ContainsAny(segment, "{}"):
			l.errorf(n, t, "path segment %q: a {parameter} is a whole segment, and has a name", short(segment))
		}
		params = append(params, name)
	}
	return params
}

// paramName returns the name of a segment that is a parameter.
func paramName(segment string) (string, bool) {
	if len(segment) < 3 || segment[0] != '{' || segment[len(segment)-1] != '}' {
		return "", false
	}
	name := segment[1 : len(segment)-1]
	return name, !strings.ContainsAny(name, "{}")
}

// pattern reads a regular expression for paths.
func (l *loader) pattern(n *yaml.Node, t *twig, s string, res *resource) {
	res.class, res.name = classRegex, s
	if s == "" || len(s) > maxPattern {
		l.errorf(n, t, "a path's regular expression has 1 to %d bytes, not %d", maxPattern, len(s))
		return
	}
	parsed, err := syntax.Parse(s, syntax.Perl)
	if err == nil {
		res.re, err = regexp.Compile(s)
	}
	if err != nil {
		l.errorf(n, t, "path: %v", err)
		return
	}
	res.prefix, res.start = literalPrefix(parsed)
}

// literalPrefix returns the text that every match of re starts with, and
// whether matches are at the start of a text only.
func literalPrefix(re *syntax.Regexp) (prefix string, start bool) {
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	if parts[0].Op == syntax.OpBeginText {
		parts, start = parts[1:], true
	}
	if len(parts) > 0 && parts[0].Op == syntax.OpLiteral && parts[0].Flags&syntax.FoldCase == 0 {
		prefix = string(parts[0].Rune)
	}
	return prefix, start
}

// matcher reads the resource's criteria.
func (l *loader) matcher(f fields, t *twig, res *resource) {
	r := &matchReader{l: l, t: t}
	if res.class == classTemplate || res.class == classPrefix {
		for rest := res.name; rest != ""; {
			var segment string
			segment, rest = cutSegment(rest)
			name, _ := paramName(segment)
			r.params = append(r.params, name)
		}
	}
	if l.style.plugin == "rest" {
		for _, name := range []string{"soapAction", "binding"} {
			if n := f.get(name); n != nil {
				l.errorf(n, t, "%s belongs in a file with plugin: soap", name)
			}
		}
	}
	r.read(f)
	if n := f.get("match"); n != nil && !isNull(n) {
		if m, ok := l.fields(n, levelMatch, t); ok {
			r.read(m)
		}
	}
	res.criteria = r.cs
	res.spec.Matcher = &r.m
}

// resourceIndex compiles the resources of a domain, nil if there are none.
func (l *loader) resourceIndex(d *twig) *resourceIndex {
	if len(d.resources) == 0 {
		return nil
	}
	l.sameRequests(d)
	ix := &resourceIndex{
		operations: map[string][]*resource{}, exact: map[string][]*resource{},
		templates: &segments{}, prefixes: &segments{},
		params: map[string]bool{}, cutParams: d.matrix != nil && d.matrix.ignore,
	}
	for _, r := range d.resources {
		if ix.cutParams && r.class != classRegex && r.class != classOperation && hasParams(r.spec.Name) {
			l.at(r.from, false, "path %q: %s says that paths are compared without what follows a semicolon", short(r.spec.Name), d.matrix)
		}
		ix.add(r)
	}
	ix.sort()
	ix.lists(func(list []*resource) {
		if len(list) > maxAlike {
			l.at(list[maxAlike].from, false, "more than %d resources have this path and differ only in method and criteria; "+
				"matching them would be slow", maxAlike)
		}
	})
	if len(ix.regexes) > maxRegexes {
		l.at(ix.regexes[maxRegexes].from, false, "the domain has more than %d regular expressions for paths; matching them would be slow", maxRegexes)
	}
	if n := len(matchedHeaders(d.resources)); n > maxMatchedHeaders {
		l.at(d.resources[0].from, false, "the domain's resources match on %d different headers; a request carries at most %d", n, maxMatchedHeaders)
	}
	return ix
}

// sameRequests warns of rules that can never apply.
func (l *loader) sameRequests(d *twig) {
	first := map[string]*resource{}
	for _, r := range d.resources {
		encoding, _ := r.spec.Matcher.encode()
		id := parts(r.method, fmt.Sprint(r.class), r.shape(), string(encoding))
		if o := first[id]; o != nil {
			l.at(r.from, true, "the resource never applies: the earlier %s in %s:%d matches the same requests",
				o.rule.Resource, o.from.file, o.from.line)
			continue
		}
		first[id] = r
	}
	for _, c := range d.children {
		if c.key != methodEntry {
			continue
		}
		for _, below := range c.children {
			if below.key == pathEntry {
				l.at(below, true, "the rule never applies: the domain has resources, and descriptors that begin with %s and %s are matched against those",
					methodEntry, pathEntry)
			}
		}
	}
}

// shape is the resource's name without the names of parameters.
func (r *resource) shape() string {
	if r.class != classTemplate && r.class != classPrefix {
		return r.name
	}
	var b strings.Builder
	for rest := r.name; rest != ""; {
		var segment string
		segment, rest = cutSegment(rest)
		if _, ok := paramName(segment); ok {
			segment = "{}"
		}
		b.WriteString("/" + segment)
	}
	return b.String()
}
