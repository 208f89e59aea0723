package web

import (
	"embed"
	"net/http"
	"path"
)

//go:embed look
var look embed.FS

// kinds are the Content-Types of the files of pages, by the ends of their names.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// Page returns handlers of a page and of the files that it needs, by their names: its own, which are beside index.html
// in the folder page, and those that all pages share: look.css and forms.css, how they look; look.js, how they ask with
// a token; and icon.svg. A page serves them below its own path.
func Page(own embed.FS) (index http.HandlerFunc, files map[string]http.HandlerFunc) {
	files = map[string]http.HandlerFunc{}
	for dir, from := range map[string]embed.FS{"look": look, "page": own} {
		entries, _ := from.ReadDir(dir)
		for _, e := range entries {
			content, _ := from.ReadFile(dir + "/" + e.Name()) // it is there
			files[e.Name()] = Static(kinds[path.Ext(e.Name())], content)
		}
	}
	index = files["index.html"]
	delete(files, "index.html")
	return index, files
}

// PageHandler returns the handler of a page at some paths, with its files below a path that ends in a slash. Paths of
// the pattern rest that are neither get 404 and the text notFound. It has no secrets and needs no guard: what a page
// asks for does.
func PageHandler(own embed.FS, paths []string, below, rest, notFound string) http.Handler {
	mux := http.NewServeMux()
	index, files := Page(own)
	for _, at := range paths {
		mux.Handle("GET "+at, index)
	}
	for name, serve := range files {
		mux.Handle("GET "+below+name, serve)
	}
	mux.HandleFunc(rest, func(w http.ResponseWriter, _ *http.Request) { Error(w, http.StatusNotFound, notFound) })
	return mux
}

// pagePolicy lets a page load its own files and ask its own server, and nothing
// else; nobody may frame it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Static returns a handler that serves the content of a file of a page, of the given Content-Type.
func Static(kind string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		head := w.Header()
		head.Set("Content-Type", kind)
		head.Set("Content-Security-Policy", pagePolicy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cache-Control", "no-cache")
		_, _ = w.Write(content) // fails only if the client is gone
	}
}
