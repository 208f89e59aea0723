package httpapi

import (
	_ "embed" // the files of the page
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/web"
)

//go:embed page/index.html
var pageHTML []byte

//go:embed page/app.js
var pageScript []byte

//go:embed page/app.css
var pageStyle []byte

//go:embed openapi.json
var openAPI []byte

func (h *Handlers) pageRoutes() []web.Route {
	return []web.Route{
		{Method: "GET", Path: "/slots", Handle: file("text/html; charset=utf-8", pageHTML)},
		{Method: "GET", Path: "/slots/app.js", Handle: file("text/javascript; charset=utf-8", pageScript)},
		{Method: "GET", Path: "/slots/app.css", Handle: file("text/css; charset=utf-8", pageStyle)},
		{Method: "GET", Path: "/slots/look.css", Handle: shared("look.css")},
		{Method: "GET", Path: "/slots/icon.svg", Handle: shared("icon.svg")},
	}
}

// file returns a handler that serves the content.
func file(kind string, content []byte) func(http.ResponseWriter, *http.Request, web.Params) error {
	return handle(web.Static(kind, content))
}

// shared returns a handler of a file that pages share.
func shared(name string) func(http.ResponseWriter, *http.Request, web.Params) error {
	return handle(web.Look()[name])
}

func handle(serve http.HandlerFunc) func(http.ResponseWriter, *http.Request, web.Params) error {
	return func(w http.ResponseWriter, r *http.Request, _ web.Params) error {
		serve(w, r)
		return nil
	}
}
