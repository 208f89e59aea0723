package middleware

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// An Extractor returns a value of a request. ok is false if the request has none; then the
// descriptor that asks for it is left out.
type Extractor func(r *http.Request) (value string, ok bool)

// An Entry is a key, as rules name it, and where its value comes from.
type Entry struct {
	Key   string
	Value Extractor
}

// A Descriptor describes a request to the rules with these keys, in this order.
type Descriptor []Entry

// Text is always the same value.
func Text(value string) Extractor {
	return func(*http.Request) (string, bool) { return value, true }
}

// Method is the request's method.
func Method() Extractor {
	return func(r *http.Request) (string, bool) { return cmp.Or(r.Method, http.MethodGet), true }
}

// Path is the request's path, decoded. That of a request without one is "/".
func Path() Extractor {
	return func(r *http.Request) (string, bool) { return cmp.Or(r.URL.Path, "/"), true }
}

// Route is the pattern by which an [http.ServeMux] has found the handler, such as "GET
// /items/{id}". The middleware must stand behind the mux; in front of it, use [RouteOf].
func Route() Extractor {
	return func(r *http.Request) (string, bool) { return r.Pattern, r.Pattern != "" }
}

// RouteOf is the pattern by which mux will find the handler.
func RouteOf(mux *http.ServeMux) Extractor {
	return func(r *http.Request) (string, bool) {
		_, pattern := mux.Handler(r)
		return pattern, pattern != ""
	}
}

// Header is the first value of a header, hashed: neither the store nor the metrics nor the
// logs show it.
func Header(name string) Extractor { return Hashed(PlainHeader(name)) }

// PlainHeader is the first value of a header as it is, for rules that name values.
func PlainHeader(name string) Extractor {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, bool) {
		value := header(r, name)
		return value, value != ""
	}
}

// header returns the first value of a header, or "". The name is canonical. It also finds the host, the scheme and the
// transfer encoding, which are headers to Envoy, but not in [http.Request].
func header(r *http.Request, name string) string {
	switch name {
	case "Host", ":authority":
		return r.Host
	case ":scheme":
		if r.TLS != nil {
			return "https"
		}
		return "http"
	case "Transfer-Encoding":
		return strings.Join(r.TransferEncoding, ", ")
	}
	if values := r.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// APIKey is the header X-API-Key, hashed. A client can send any key: have the keys checked
// before the request comes here, or limit by [ClientIP] as well.
func APIKey() Extractor { return Header("X-API-Key") }

// Subject is who has signed in, as name reports it.
func Subject(name func(r *http.Request) (subject string, ok bool)) Extractor { return name }

// Or is the first value that there is.
func Or(list ...Extractor) Extractor {
	return func(r *http.Request) (string, bool) {
		for _, e := range list {
			if value, ok := e(r); ok {
				return value, true
			}
		}
		return "", false
	}
}

// Hashed is a value as the first half of its SHA-256, in hex.
func Hashed(e Extractor) Extractor {
	return func(r *http.Request) (string, bool) {
		value, ok := e(r)
		if !ok {
			return "", false
		}
		sum := sha256.Sum256([]byte(value))
		return hex.EncodeToString(sum[:sha256.Size/2]), true
	}
}
