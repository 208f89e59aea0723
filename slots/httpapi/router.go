package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/web"
	"github.com/headgate-rls/headgate/slots"
)

// Bounds of bodies, in bytes.
const (
	maxBody  = 64 << 10
	maxBatch = 512 << 10
)

// A route is one operation, as it is in the OpenAPI document.
type route struct {
	method string
	path   string   // may end with a parameter in braces
	query  []string // parameters that it knows
	handle func(w http.ResponseWriter, r *http.Request, p params) error
}

// params are the parameters of a request's query and path, by name.
type params map[string]string

func handle(routes []route, w http.ResponseWriter, r *http.Request) error {
	var allowed []string
	for _, route := range routes {
		p, ok := match(route.path, r.URL.EscapedPath())
		switch {
		case !ok:
		case route.method == r.Method, route.method == http.MethodGet && r.Method == http.MethodHead:
			if err := readQuery(r.URL.RawQuery, route.query, p); err != nil {
				return err
			}
			return route.handle(w, r, p)
		default:
			allowed = append(allowed, route.method)
		}
	}
	if len(allowed) == 0 {
		return &web.RequestError{Status: http.StatusNotFound, Message: "there is nothing at this path; /api/v1/openapi.json tells what there is"}
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return &web.RequestError{Status: http.StatusMethodNotAllowed, Message: "this path has no " + r.Method + ", but " + list}
}

// match compares a path, escaped as it was sent, with that of a route.
func match(pattern, path string) (params, bool) {
	before, name, has := strings.Cut(pattern, "{")
	if !has {
		return params{}, path == pattern
	}
	rest, ok := strings.CutPrefix(path, before)
	if !ok || rest == "" || strings.Contains(rest, "/") {
		return nil, false
	}
	value, err := url.PathUnescape(rest)
	return params{strings.TrimSuffix(name, "}"): value}, err == nil
}

// readQuery adds the parameters of a query to p. A name that is not known is an
// error, as a misspelt "since" would answer with everything.
func readQuery(raw string, known []string, p params) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return &web.RequestError{Status: http.StatusBadRequest, Message: "the query of the URL cannot be read: write &, ; and % in values as %26, %3B and %25"}
	}
	for name, list := range values {
		switch {
		case !slices.Contains(known, name):
			return slots.BadField(web.Clip(name), "is an unknown parameter; known: %s", orNone(known))
		case len(list) > 1:
			return slots.BadField(name, "is given %d times", len(list))
		case list[0] == "":
			return slots.BadField(name, "must not be empty: leave it out instead")
		}
		p[name] = list[0]
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
