package httpapi

import (
	"embed"
	"log/slog"
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies/table"
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

// New returns the handlers. Each change and each failure is one line of the log.
func New(editor *table.Editor, log *slog.Logger) *Handlers {
	h := &Handlers{editor: editor, log: log}
	h.Handler = web.Serve(h.routes(), "/admin/openapi.json", timeout, h.fail)
	return h
}

//go:embed page
var page embed.FS

// Page returns the handler of /policies, the page that searches and changes policies.
func Page() http.Handler {
	return web.PageHandler(page, []string{"/policies"}, "/policies/", "/policies/", "the page of policies is at /policies")
}
