package httpapi

import (
	_ "embed" // the files of the page
	"net/http"

	"github.com/headgate-rls/headgate/internal/web"
)

//go:embed page/index.html
var pageHTML []byte

//go:embed page/app.js
var pageScript []byte

//go:embed page/app.css
var pageStyle []byte

//go:embed page/icon.svg
var pageIcon []byte

//go:embed openapi.json
var openAPI []byte

// pagePolicy lets the page load its own files and ask its own server, and nothing
// else; nobody may frame it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (h *Handlers) pageRoutes() []web.Route {
	return []web.Route{
		{Method: "GET", Path: "/slots", Handle: file("text/html; charset=utf-8", pageHTML)},
		{Method: "GET", Path: "/slots/app.js", Handle: file("text/javascript; charset=utf-8", pageScript)},
		{Method: "GET", Path: "/slots/app.css", Handle: file("text/css; charset=utf-8", pageStyle)},
		{Method: "GET", Path: "/slots/icon.svg", Handle: file("image/svg+xml", pageIcon)},
	}
}

func (h *Handlers) getOpenAPI(w http.ResponseWriter, r *http.Request, p web.Params) error {
	return file("application/json", openAPI)(w, r, p)
}

// file returns a handler that serves the content.
func file(kind string, content []byte) func(http.ResponseWriter, *http.Request, web.Params) error {
	return func(w http.ResponseWriter, _ *http.Request, _ web.Params) error {
		head := w.Header()
		head.Set("Content-Type", kind)
		head.Set("Content-Security-Policy", pagePolicy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cache-Control", "no-cache")
		_, _ = w.Write(content) // fails only if the client is gone
		return nil
	}
}
