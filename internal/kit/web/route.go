package web

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Route is one operation of an API, as it is in its OpenAPI document.
type Route struct {
	Method string
	Path   string   // may end with a parameter in braces, which is one segment
	Rest   bool     // the parameter may be several segments: a key with slashes works as it is printed
	Query  []string // parameters that it knows
	Handle func(w http.ResponseWriter, r *http.Request, p Params) error
}

// Params are the parameters of a request's query and path, by name. Percent signs in them are
// decoded once.
type Params map[string]string

// Dispatch does the route that a request is for, and returns its error. A request for none is an
// error too, which names the document that lists the routes. Dispatch takes the place of
// http.ServeMux, which answers in plain text, and redirects parameters such as "..".
func Dispatch(routes []Route, document string, w http.ResponseWriter, r *http.Request) error {
	var allowed []string
	for _, route := range routes {
		p, ok := route.Match(r)
		switch {
		case !ok:
		case route.Method == r.Method, route.Method == http.MethodGet && r.Method == http.MethodHead:
			if err := readQuery(r.URL.RawQuery, route.Query, p); err != nil {
				return err
			}
			return route.Handle(w, r, p)
		default:
			allowed = append(allowed, route.Method)
		}
	}
	if len(allowed) == 0 {
		return Refuse(http.StatusNotFound, "there is nothing at this path; %s tells what there is", document)
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return Refuse(http.StatusMethodNotAllowed, "this path has no %s, but %s", r.Method, list)
}

// Serve returns a handler that does the routes, each request within a time, and has fail answer with their errors.
func Serve(routes []Route, document string, within time.Duration,
	fail func(w http.ResponseWriter, r *http.Request, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), within)
		defer cancel()
		r = r.WithContext(ctx)
		if err := Dispatch(routes, document, w, r); err != nil {
			fail(w, r, err)
		}
	})
}

// Match compares the path of a request, escaped as it was sent, with that of the route, and returns
// the parameter in it.
func (route *Route) Match(r *http.Request) (Params, bool) {
	before, name, has := strings.Cut(route.Path, "{")
	path := r.URL.EscapedPath()
	if !has {
		return Params{}, path == route.Path
	}
	rest, ok := strings.CutPrefix(path, before)
	slashes := "/"
	if route.Rest {
		slashes = "//" // which some proxies make one of
	}
	if !ok || rest == "" || strings.Contains(rest, slashes) {
		return nil, false
	}
	value, err := url.PathUnescape(rest)
	return Params{strings.TrimSuffix(name, "}"): value}, err == nil
}

// readQuery adds the parameters of a query to p. A name that is not known is an
// error, as a misspelt "since" would answer with everything.
func readQuery(raw string, known []string, p Params) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return BadRequest("the query of the URL cannot be read: write &, ; and %% in values as %%26, %%3B and %%25")
	}
	for name, list := range values {
		switch {
		case !slices.Contains(known, name):
			return BadRequest("%s is an unknown parameter; known: %s", Clip(name),
				cmp.Or(strings.Join(known, ", "), "none"))
		case len(list) > 1:
			return BadRequest("%s is given %d times", name, len(list))
		case list[0] == "":
			return BadRequest("%s must not be empty: leave it out instead", name)
		}
		p[name] = list[0]
	}
	return nil
}

// Limit is the parameter limit: how many to list, from 1 to most. Without it, it is standard.
func (p Params) Limit(standard, most int) (int, error) {
	text, ok := p["limit"]
	if !ok {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most || strings.HasPrefix(text, "+") {
		return 0, BadRequest("limit is %q, want a whole number from 1 to %d", Clip(text), most)
	}
	return n, nil
}
