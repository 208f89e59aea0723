package httpapi

import (
	"context"
	_ "embed" // the OpenAPI document
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/web"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the document of the handlers.
func OpenAPI() []byte { return openAPI }

// routes are those of the OpenAPI document.
func (h *Handlers) routes() []web.Route {
	change := []string{"dryRun"}
	return []web.Route{
		{Method: "GET", Path: "/admin/policies", Query: []string{"prefix", "after", "limit"}, Handle: h.list},
		{Method: "POST", Path: "/admin/policies", Query: change, Handle: h.create},
		{Method: "GET", Path: "/admin/policies/{key}", Rest: true, Handle: h.get},
		{Method: "PUT", Path: "/admin/policies/{key}", Rest: true, Query: change, Handle: h.update},
		{Method: "DELETE", Path: "/admin/policies/{key}", Rest: true, Query: change, Handle: h.remove},
		{Method: "GET", Path: "/admin/policies-history", Query: []string{"key", "after", "limit"}, Handle: h.history},
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
