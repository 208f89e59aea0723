package httpapi

import (
	"context"
	"net/http"
)

// API returns the handler of /api/v1/… and of the page /slots and what is below it.
func (h *Handlers) API() http.Handler { return h.serve(h.apiRoutes()) }

// Admin returns the handler of /admin/…, with the guard in front of it.
func (h *Handlers) Admin() http.Handler { return h.guard.Wrap(h.serve(h.adminRoutes())) }

func (h *Handlers) apiRoutes() []route {
	return append([]route{
		{"POST", "/api/v1/slots", nil, h.postSlot},
		{"POST", "/api/v1/slots:batch", nil, h.postBatch},
		{"GET", "/api/v1/slots", []string{"since", "after", "limit"}, h.getSlots},
		{"GET", "/api/v1/slots/{eventId}", nil, h.getSlot},
		{"GET", "/api/v1/configs", nil, h.getConfigs},
		{"GET", "/api/v1/windows", []string{"config", "from", "limit"}, h.getWindows},
		{"GET", "/api/v1/openapi.json", nil, h.getOpenAPI},
	}, h.pageRoutes()...)
}

func (h *Handlers) adminRoutes() []route {
	return []route{
		{"GET", "/admin/rate-limit/config", []string{"name"}, h.getConfig},
		{"POST", "/admin/rate-limit/config", nil, h.postConfig},
		{"GET", "/admin/rate-limit/configs", nil, h.getConfigs},
		{"POST", "/admin/rate-limit/cache/flush", nil, h.postFlush},
	}
}

// serve returns a handler that does the routes. It takes the place of
// http.ServeMux, which answers in plain text, and redirects ids such as "..".
func (h *Handlers) serve(routes []route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
		defer cancel()
		r = r.WithContext(ctx)
		if err := handle(routes, w, r); err != nil {
			h.fail(w, r, err)
		}
	})
}
