package httpapi

import (
	"embed"
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

// New returns the handlers. Each reset and each failure is one line of the log.
func New(c Config) *Handlers {
	h := &Handlers{Config: c, listing: make(chan struct{}, 1)}
	h.Handler = web.Serve(h.routes(), "/admin/openapi.json", timeout, h.fail)
	return h
}

//go:embed page
var page embed.FS

// Page returns the handler of / and /limits, the pages that show how the service is and who is limited.
func Page() http.Handler {
	return web.PageHandler(page, []string{"/{$}", "/limits"}, "/limits/", "/", "the pages are at / and /limits")
}
