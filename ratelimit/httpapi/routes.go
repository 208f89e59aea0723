package httpapi

import (
	"context"
	_ "embed" // the OpenAPI document
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/web"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the document of the handlers, and of the path where all documents are.
func OpenAPI() []byte { return openAPI }

// routes are those of the OpenAPI document, but for that of the document itself.
func (h *Handlers) routes() []web.Route {
	return []web.Route{
		{Method: "GET", Path: "/admin/status", Handle: h.status},
		{Method: "GET", Path: "/admin/metrics", Query: []string{"after", "limit"}, Handle: h.list},
		{Method: "GET", Path: "/admin/metrics/{key}", Rest: true, Handle: h.get},
		{Method: "POST", Path: "/admin/reset/{key}", Rest: true, Handle: h.reset},
		{Method: "GET", Path: "/admin/coverage", Handle: h.coverage},
		{Method: "GET", Path: "/admin/reloads", Handle: h.reloads},
		{Method: "GET", Path: "/admin/top", Query: []string{"by", "window", "limit"}, Handle: h.top},
		{Method: "GET", Path: "/admin/explain", Query: []string{"domain", "descriptor", "key", "request_id"},
			Handle: h.explain},
		{Method: "GET", Path: "/admin/rules", Query: []string{"domain", "after", "limit"}, Handle: h.rules},
		{Method: "GET", Path: "/admin/recent", Query: []string{"key", "limit"}, Handle: h.recent},
	}
}

// ServeHTTP answers requests whose paths begin with /admin/. A guard must stand in front of it.
func (h *Handlers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	r = r.WithContext(ctx)
	if err := web.Dispatch(h.routes(), "/admin/openapi.json", w, r); err != nil {
		h.fail(w, r, err)
	}
}
