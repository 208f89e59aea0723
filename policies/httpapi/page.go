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

// Page returns the handler of /policies, the page that searches and changes policies. It has no secrets
// and needs no guard: what it asks for does.
func Page() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /policies", web.Static("text/html; charset=utf-8", pageHTML))
	mux.Handle("GET /policies/app.js", web.Static("text/javascript; charset=utf-8", pageScript))
	mux.Handle("GET /policies/app.css", web.Static("text/css; charset=utf-8", pageStyle))
	for name, serve := range web.Look() {
		mux.Handle("GET /policies/"+name, serve)
	}
	mux.HandleFunc("/policies/", func(w http.ResponseWriter, _ *http.Request) {
		web.Error(w, http.StatusNotFound, "the page of policies is at /policies")
	})
	return mux
}
