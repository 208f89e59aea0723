package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// readStyle reads the file's top level but for its domain and rules.
func (l *loader) readStyle(f fields) {
	plugins := []string{"rest", "soap"}
	if i, ok := l.word(f.get("plugin"), nil, "plugin", plugins...); ok {
		l.style.plugin = plugins[i]
	}
	length, _ := l.integer(f.get("hashLength"), nil, "hashLength", 1, descriptors.MaxHashLength)
	l.style.hashLength = int(length)
	if n := f.get("wsdlFile"); n != nil && f.get("plugin") == nil {
		l.errorf(n, nil, "wsdlFile belongs in files with plugin: soap, where it is ignored")
	}
}

// switchOf reads a field with two values, of which the second one is on; nil if the file does not have it.
func (l *loader) switchOf(f fields, name, off, on string) *descriptors.Switch {
	n := f.get(name)
	i, ok := l.word(n, nil, name, off, on)
	if !ok {
		return nil
	}
	return &descriptors.Switch{Name: name, On: i == 1, Place: l.place(n)}
}

// paths reads which spellings of a path count; nil if the file does not say.
func (l *loader) paths(f fields) (asSent, anyCase *descriptors.Switch) {
	const name, sent, cases = "paths", 1, 2
	n := f.get(name)
	i, ok := l.word(n, nil, name, "strict", "as_sent", "any_case")
	if !ok {
		return nil, nil
	}
	what := func(word int) *descriptors.Switch {
		return &descriptors.Switch{Name: name, On: i == word, Place: l.place(n)}
	}
	return what(sent), what(cases)
}

// resource reads one entry of resources. It returns nil if that is no resource
// at all, or one that is skipped.
func (l *loader) resource(n *yaml.Node, d *twig) *descriptors.ResourceSpec {
	if l.enough(d) {
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
	r := &descriptors.ResourceSpec{HashLength: l.style.hashLength,
		Body: descriptors.Body{Place: l.place(n), Fields: written(f)}}
	usable := true
	r.Broken = !l.Clean(func() {
		l.resourceName(n, f, t, r)
		usable = l.matcher(f, t, r)
		r.Name, _ = l.text(f.get("name"), t, "name")
		l.texts(f, t, "by", func(n *yaml.Node, name string) {
			r.By = append(r.By, descriptors.Value{Name: name, Place: l.place(n)})
		})
		r.Except = l.except(f, t)
	})
	l.resourceRule(f, t, &r.Body)
	if !usable && !r.Broken {
		return nil
	}
	if !f.limits() {
		l.exempts(n, t, exemptsAll)
	}
	return r
}

// label names a resource in problems before it is read.
func (l *loader) label(n *yaml.Node) string {
	r := descriptors.ResourceSpec{Method: l.peek(n, "method"), Path: l.peek(n, "path"), Operation: l.peek(n, "operation")}
	r.SOAP = r.Operation != "" || l.style.plugin == "soap"
	return r.Label()
}

// resourceRule reads what a resource limits.
func (l *loader) resourceRule(f fields, t *twig, r *descriptors.Body) {
	l.modes(f, t, r)
	if l.style.plugin != "" {
		// What a mock would answer is nothing to us.
		f = slices.DeleteFunc(f, func(p pair) bool { return p.name == "response" })
	}
	l.policy(f, t, r)
	if l.limitsOf(f, t, r) {
		l.errorf(f.get("limits"), t,
			"counter: value needs the value of an entry; a resource has one counter for all its requests")
	}
	l.concurrencyOf(f, t, r)
	l.pointless(f, t, r)
}

// whichRequests are the fields of a resource that say what requests it is for.
var whichRequests = levelResource.keys[:slices.Index(levelResource.keys, "concurrency")]

// resourceName reads method, path and operation.
func (l *loader) resourceName(n *yaml.Node, f fields, t *twig, r *descriptors.ResourceSpec) {
	for _, v := range []struct {
		name string
		to   *string
	}{{"method", &r.Method}, {"path", &r.Path}, {"operation", &r.Operation}} {
		*v.to, _ = l.text(f.get(v.name), t, v.name)
	}
	path, operation := f.get("path"), f.get("operation")
	r.SOAP = operation != nil || l.style.plugin == "soap" ||
		path == nil && (f.get("soapAction") != nil || f.get("binding") != nil)
	if l.style.plugin == "rest" && operation != nil {
		l.errorf(operation, t, "operation belongs in a file with plugin: soap")
	}
	if r.SOAP && path != nil && r.Path == "" {
		l.errorf(path, t, "a SOAP resource is found by its operation; it has no path")
	}
	if !r.SOAP && r.Path == "" &&
		!slices.ContainsFunc(f, func(p pair) bool { return slices.Contains(whichRequests, p.name) }) {
		l.errorf(n, t, "the resource has no path and no criteria; write path: '*' if it is for every request")
	}
}

// matcher reads the resource's criteria. It returns whether requests can carry what they ask for.
func (l *loader) matcher(f fields, t *twig, res *descriptors.ResourceSpec) (usable bool) {
	r := &matchReader{l: l, t: t}
	if l.style.plugin == "rest" {
		for _, name := range []string{"soapAction", "binding"} {
			if n := f.get(name); n != nil {
				l.errorf(n, t, "%s belongs in a file with plugin: soap", name)
			}
		}
	}
	r.read(f)
	if n := f.get("match"); !isNull(n) {
		if m, ok := l.fields(n, levelMatch, t); ok {
			r.read(m)
		}
	}
	res.Matcher = r.m
	return !r.unusable
}
