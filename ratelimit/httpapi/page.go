package httpapi

import (
	_ "embed" // the files of the pages
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/web"
)

//go:embed page/index.html
var pageHTML []byte

//go:embed page/app.js
var pageScript []byte

//go:embed page/app.css
var pageStyle []byte

// Page returns the handler of / and /limits, the pages that show how the service is and who is limited. They have no
// secrets and need no guard: what they ask for does.
func Page() http.Handler {
	mux := http.NewServeMux()
	page := web.Static("text/html; charset=utf-8", pageHTML)
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /limits", page)
	mux.Handle("GET /limits/app.js", web.Static("text/javascript; charset=utf-8", pageScript))
	mux.Handle("GET /limits/app.css", web.Static("text/css; charset=utf-8", pageStyle))
	for name, serve := range web.Look() {
		mux.Handle("GET /limits/"+name, serve)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		web.Error(w, http.StatusNotFound, "the pages are at / and /limits")
	})
	return mux
}
