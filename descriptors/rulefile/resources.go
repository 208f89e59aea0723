package rulefile

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/spell"
)

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
		length, _ := l.integer(n, nil, "hashLength", 1, descriptors.MaxHashLength)
		l.style.hashLength = int(length)
	}
	if n := f.get("wsdlFile"); n != nil && f.get("plugin") == nil {
		l.errorf(n, nil, "wsdlFile belongs in files with plugin: soap, where it is ignored")
	}
}

// matrixMode reads what the file says of its domain's matrix parameters, nil if
// it says nothing.
func (l *loader) matrixMode(f fields) *descriptors.MatrixSpec {
	n := f.get("matrix_parameters")
	if n == nil {
		return nil
	}
	i, ok := l.word(n, nil, "matrix_parameters", "keep", "ignore")
	if !ok {
		return nil
	}
	return &descriptors.MatrixSpec{Ignore: i == 1, Place: l.place(n)}
}

// resource reads one entry of resources. It returns nil if that is no resource
// at all.
func (l *loader) resource(n *yaml.Node, d *twig) *descriptors.ResourceSpec {
	if l.nodes++; l.nodes > maxRules {
		if !l.stop {
			l.errorf(n, d, "more than %d rules", maxRules)
		}
		l.stop = true
		return nil
	}
	t := &twig{parent: d, depth: 1, key: "resource"}
	if n.Kind == yaml.MappingNode {
		t.key = l.label(n)
	}
	f, ok := l.fields(n, levelResource, t)
	if !ok {
		return nil
	}
	r := &descriptors.ResourceSpec{Label: t.key, HashLength: l.style.hashLength, Body: descriptors.Body{Place: l.place(n)}}
	known := l.Clean(func() {
		l.resourceName(n, f, t, r)
		l.matcher(f, t, r)
	})
	l.resourceRule(f, t, &r.Body)
	named := f.get("name")
	ok = l.Clean(func() { r.Name = l.name(named, t) })
	if r.Broken = !known || !ok; r.Name != "" {
		r.NamePlace = l.place(named)
	}
	return r
}

// label names a resource in problems, before its key is known.
func (l *loader) label(n *yaml.Node) string {
	name := l.peek(n, "path", descriptors.MaxResourceName)
	if name == "" {
		name = l.peek(n, "operation", descriptors.MaxResourceName)
	}
	method := l.peek(n, "method", maxName)
	if method == "" && l.style.plugin == "soap" {
		method = "POST"
	}
	return strings.ToUpper(cmp.Or(method, "*")) + ":" + spell.Short(cmp.Or(name, "*"))
}

// resourceRule reads what a resource limits.
func (l *loader) resourceRule(f fields, t *twig, r *descriptors.Body) {
	l.modes(f, t, r)
	if l.style.plugin != "" {
		// What a mock would answer is nothing to us.
		f = slices.DeleteFunc(f, func(f field) bool { return f.name == "response" })
	}
	l.policy(f, t, &r.Terms)
	if l.limitsOf(f, t, r) {
		l.errorf(f.get("limits"), t, "counter: value needs the value of an entry; a resource has one counter for all its requests")
	}
	l.concurrencyOf(f, t, &r.Terms)
	l.pointless(f, t, r)
}

// whichRequests are the fields of a resource that say what requests it is for.
var whichRequests = levelResource.keys[:slices.Index(levelResource.keys, "concurrency")]

// resourceName reads method, path and operation.
func (l *loader) resourceName(n *yaml.Node, f fields, t *twig, res *descriptors.ResourceSpec) {
	if m := f.get("method"); m != nil {
		res.Method = l.method(m, t)
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
		res.Path = descriptors.AnyPath()
	default:
		l.path(path, t, res)
	}
}

func (l *loader) operation(f fields, n *yaml.Node, t *twig, res *descriptors.ResourceSpec) {
	res.Path = descriptors.Operation("")
	if res.Method != "" && res.Method != "POST" {
		l.errorf(f.get("method"), t, "SOAP requests are POST, not %s", res.Method)
	}
	res.Method = "POST"
	if n == nil || isNull(n) {
		return
	}
	s, _ := l.text(n, t, "operation", maxKey)
	if s == "*" {
		return
	}
	if strings.ContainsAny(s, "/#: \t\"") {
		l.errorf(n, t, "operation %q must be the last part of the SOAPAction: without /, #, :, quotes and spaces", spell.Short(s))
	}
	res.Path = descriptors.Operation(s)
}

// method reads an HTTP method; "" is any.
func (l *loader) method(n *yaml.Node, t *twig) string {
	s, _ := l.text(n, t, "method", maxName)
	if s == "*" || s == "" {
		return ""
	}
	for _, c := range []byte(s) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '_' {
			l.errorf(n, t, "unknown method %q; it must be one such as GET, or * for any", spell.Short(s))
			return ""
		}
	}
	s = strings.ToUpper(s)
	if meant := spell.Nearest(s, methods); meant != "" && meant != s {
		l.warnf(n, t, "method %q is not one of HTTP's; did you mean %s?", spell.Short(s), meant)
	}
	return s
}

// methods are those of RFC 9110 and RFC 5789. Others may be used, too.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

// path reads a path: its class is how it is written.
func (l *loader) path(n *yaml.Node, t *twig, res *descriptors.ResourceSpec) {
	s, ok := l.text(n, t, "path", descriptors.MaxResourceName)
	if !ok {
		return
	}
	var err error
	if res.Path, err = descriptors.ParsePath(s); err != nil {
		l.pathErrors(n, t, err)
	}
}

// pathErrors reports each of the errors in err.
func (l *loader) pathErrors(n *yaml.Node, t *twig, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			l.errorf(n, t, "%v", err)
		}
		return
	}
	l.errorf(n, t, "%v", err)
}

// matcher reads the resource's criteria.
func (l *loader) matcher(f fields, t *twig, res *descriptors.ResourceSpec) {
	r := &matchReader{l: l, t: t, params: res.Path.Params()}
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
	res.Matcher = r.m
}
