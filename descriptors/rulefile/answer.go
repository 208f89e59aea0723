package rulefile

import (
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// policy reads what a rule says of failures, charging and its answer.
func (l *loader) policy(f fields, t *twig, r *descriptors.Body) {
	l.failures(f, t, &r.OnBackendError, &r.OnOverload)
	choose(l, f, t, "charge", descriptors.Charges(), &r.Charge)
	choose(l, f, t, "overflow", descriptors.Overflows(), &r.Overflow)
	r.MaxDebt, _ = l.integer(f.get("max_debt"), t, "max_debt", 1, limit.MaxUnits)
	r.MaxKeys, _ = l.integer(f.get("max_keys"), t, "max_keys", 1, descriptors.MaxKeys)
	r.Reserve = l.reserve(f, t)
	r.RequestHeaders = l.headers(f.get("request_headers"), t, "request_headers", &r.Fields)
	if n := f.get("response"); n != nil {
		if f, ok := l.fields(n, levelResponse, t); ok {
			r.Response = &descriptors.Response{}
			r.Response.Content, r.Response.Headers = l.answer(f, t, &r.Fields)
		}
	}
}

// failures reads what to answer without the backend.
func (l *loader) failures(f fields, t *twig, onError, onOverload *descriptors.FailurePolicy) {
	choose(l, f, t, "on_backend_error", descriptors.FailurePolicies(), onError)
	choose(l, f, t, "on_overload", descriptors.OverloadPolicies(), onOverload)
}

// choose reads a choice by its name: the first of names is that of 1.
func choose[T ~uint8](l *loader, f fields, t *twig, field string, names []string, to *T) {
	if i, ok := l.word(f.get(field), t, field, names...); ok {
		*to = T(i + 1)
	}
}

// answer reads the content and headers of a refusal, and adds where they are to
// places.
func (l *loader) answer(f fields, t *twig, places *descriptors.Fields) (content string, headers []descriptors.Header) {
	*places = append(*places, written(f)...)
	content, _ = l.text(f.get("content"), t, "content")
	return content, l.headers(f.get("headers"), t, "headers", places)
}

// headers reads headers and their values, and adds where they are to places.
func (l *loader) headers(n *yaml.Node, t *twig, what string, places *descriptors.Fields) []descriptors.Header {
	if isNull(n) {
		return nil
	}
	var headers []descriptors.Header
	pairs, _ := l.mapping(n, t, what)
	for _, p := range pairs {
		*places = append(*places, descriptors.Field{Name: "header " + p.name, Line: p.key.Line, Col: p.key.Column})
		if value, ok := l.text(p.value, t, "header "+p.name); ok {
			headers = append(headers, descriptors.Header{Name: p.name, Value: value})
		}
	}
	return headers
}
