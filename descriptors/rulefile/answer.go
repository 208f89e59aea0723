package rulefile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/spell"
)

// policy reads what a rule says of failures, charging and its answer.
func (l *loader) policy(f fields, t *twig, r *descriptors.Terms) {
	if n := f.get("on_backend_error"); n != nil {
		if i, ok := l.word(n, t, "on_backend_error", descriptors.FailurePolicies()...); ok {
			r.OnBackendError = descriptors.FailurePolicy(i + 1)
		}
	}
	if n := f.get("on_overload"); n != nil {
		if i, ok := l.word(n, t, "on_overload", descriptors.OverloadPolicies()...); ok {
			r.OnOverload = descriptors.FailurePolicy(i + 1)
		}
	}
	if n := f.get("charge"); n != nil {
		if i, ok := l.word(n, t, "charge", descriptors.Charges()...); ok {
			r.Charge = descriptors.Charge(i + 1)
		}
	}
	if n := f.get("response"); n != nil {
		l.response(n, t, r)
	}
}

func (l *loader) response(n *yaml.Node, t *twig, r *descriptors.Terms) {
	f, ok := l.fields(n, levelResponse, t)
	if !ok {
		return
	}
	r.Response = &descriptors.Response{}
	if c := f.get("content"); c != nil {
		r.Response.Content, _ = l.text(c, t, "content", maxContent)
	}
	if h := f.get("headers"); h != nil {
		r.Response.Headers = l.headers(h, t)
	}
}

// headers reads response headers and returns them sorted by name.
func (l *loader) headers(n *yaml.Node, t *twig) []descriptors.Header {
	if isNull(n) {
		return nil
	}
	pairs, _ := l.mapping(n, t, "headers")
	if len(pairs) > descriptors.MaxHeaders {
		l.errorf(n, t, "a response has at most %d headers, not %d", descriptors.MaxHeaders, len(pairs))
		return nil
	}
	var headers []descriptors.Header
	for _, p := range pairs {
		headers = l.header(p, t, headers)
	}
	slices.SortFunc(headers, func(a, b descriptors.Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}

// header appends one response header to headers.
func (l *loader) header(p pair, t *twig, headers []descriptors.Header) []descriptors.Header {
	name := strings.ToLower(p.name)
	if err := descriptors.CheckHeaderName(name); err != nil {
		l.errorf(p.key, t, "header %q %v", spell.Short(p.name), err)
		return headers
	}
	if slices.ContainsFunc(headers, func(h descriptors.Header) bool { return h.Name == name }) {
		l.errorf(p.key, t, "header %q is given twice; header names are the same in upper and lower case", name)
		return headers
	}
	value, ok := l.text(p.value, t, "header "+name, descriptors.MaxHeaderValue)
	if !ok {
		return headers
	}
	if strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		l.errorf(p.value, t, "the value of header %q must have no control characters, and no space around it", name)
		return headers
	}
	return append(headers, descriptors.Header{Name: name, Value: value})
}
