package descriptors

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// policy reads what a rule says of failures, charging and its answer.
func (l *loader) policy(f fields, t *twig, r *Terms) {
	if n := f.get("on_backend_error"); n != nil {
		if i, ok := l.word(n, t, "on_backend_error", failureNames[1:]...); ok {
			r.OnBackendError = FailurePolicy(i + 1)
		}
	}
	if n := f.get("on_overload"); n != nil {
		if i, ok := l.word(n, t, "on_overload", overloadNames...); ok {
			r.OnOverload = FailurePolicy(i + 1)
		}
	}
	if n := f.get("charge"); n != nil {
		if i, ok := l.word(n, t, "charge", chargeNames[1:]...); ok {
			r.Charge = Charge(i + 1)
		}
	}
	if n := f.get("response"); n != nil {
		l.response(n, t, r)
	}
}

func (l *loader) response(n *yaml.Node, t *twig, r *Terms) {
	f, ok := l.fields(n, levelResponse, t)
	if !ok {
		return
	}
	r.Response = &Response{}
	if c := f.get("content"); c != nil {
		r.Response.Content, _ = l.text(c, t, "content", maxContent)
	}
	if h := f.get("headers"); h != nil {
		r.Response.Headers = l.headers(h, t)
	}
}

// headers reads response headers and returns them sorted by name.
func (l *loader) headers(n *yaml.Node, t *twig) []Header {
	if isNull(n) {
		return nil
	}
	pairs, _ := l.mapping(n, t, "headers")
	if len(pairs) > maxHeaders {
		l.errorf(n, t, "a response has at most %d headers, not %d", maxHeaders, len(pairs))
		return nil
	}
	var headers []Header
	for _, p := range pairs {
		headers = l.header(p, t, headers)
	}
	slices.SortFunc(headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}

// header appends one response header to headers.
func (l *loader) header(p pair, t *twig, headers []Header) []Header {
	name := strings.ToLower(p.name)
	if err := checkHeaderName(name); err != nil {
		l.errorf(p.key, t, "header %q %v", short(p.name), err)
		return headers
	}
	if slices.ContainsFunc(headers, func(h Header) bool { return h.Name == name }) {
		l.errorf(p.key, t, "header %q is given twice; header names are the same in upper and lower case", name)
		return headers
	}
	value, ok := l.text(p.value, t, "header "+name, maxHeaderValue)
	if !ok {
		return headers
	}
	if strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		l.errorf(p.value, t, "the value of header %q must have no control characters, and no space around it", name)
		return headers
	}
	return append(headers, Header{name, value})
}
