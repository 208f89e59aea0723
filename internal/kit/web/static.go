package web

import "net/http"

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
