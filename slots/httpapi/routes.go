package httpapi

import (
	"embed"
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/web"
)

//go:embed page
var page embed.FS

//go:embed openapi.json
var openAPI []byte

// API returns the handler of /api/v1/… and of the page /slots and what is below it.
func (h *Handlers) API() http.Handler { return h.serve(h.apiRoutes()) }

// Admin returns the handler of /admin/…. It checks no token: the caller puts a guard in front.
func (h *Handlers) Admin() http.Handler { return h.serve(h.adminRoutes()) }

func (h *Handlers) apiRoutes() []web.Route {
	return append([]web.Route{
		{Method: "POST", Path: "/api/v1/slots", Handle: h.postSlot},
		{Method: "POST", Path: "/api/v1/slots:batch", Handle: h.postBatch},
		{Method: "GET", Path: "/api/v1/slots", Query: []string{"since", "after", "limit"}, Handle: h.getSlots},
		{Method: "GET", Path: "/api/v1/slots/{eventId}", Handle: h.getSlot},
		{Method: "GET", Path: "/api/v1/configs", Handle: h.getConfigs},
		{Method: "GET", Path: "/api/v1/windows", Query: []string{"config", "from", "limit"}, Handle: h.getWindows},
		{Method: "GET", Path: "/api/v1/openapi.json",
			Handle: static(web.Static("application/json", openAPI))},
	}, pageRoutes()...)
}

func (h *Handlers) adminRoutes() []web.Route {
	return []web.Route{
		{Method: "GET", Path: "/admin/rate-limit/config", Query: []string{"name"}, Handle: h.getConfig},
		{Method: "POST", Path: "/admin/rate-limit/config", Handle: h.postConfig},
		{Method: "GET", Path: "/admin/rate-limit/configs", Handle: h.getConfigs},
		{Method: "POST", Path: "/admin/rate-limit/cache/flush", Handle: h.postFlush},
	}
}

// Bounds of bodies, in bytes.
const (
	maxBody  = 64 << 10
	maxBatch = 512 << 10
)

// pageRoutes are those of the page and of its files, which the document has, too.
func pageRoutes() []web.Route {
	index, files := web.Page(page)
	routes := []web.Route{{Method: "GET", Path: "/slots", Handle: static(index)}}
	for _, name := range []string{"app.js", "app.css", "look.css", "icon.svg"} {
		routes = append(routes, web.Route{Method: "GET", Path: "/slots/" + name, Handle: static(files[name])})
	}
	return routes
}

func static(serve http.HandlerFunc) func(http.ResponseWriter, *http.Request, web.Params) error {
	return func(w http.ResponseWriter, r *http.Request, _ web.Params) error {
		serve(w, r)
		return nil
	}
}

func (h *Handlers) serve(routes []web.Route) http.Handler {
	return web.Serve(routes, "/api/v1/openapi.json", h.Timeout, h.fail)
}
