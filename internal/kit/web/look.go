package web

import (
	_ "embed" // what the pages share
	"net/http"
)

//go:embed look/look.css
var lookCSS []byte

//go:embed look/forms.css
var formsCSS []byte

//go:embed look/look.js
var lookScript []byte

//go:embed look/icon.svg
var icon []byte

// Look are the files that pages share, by their names: look.css and forms.css, how they look; look.js, how they ask
// with a token; and icon.svg. Each page serves them below its own path.
func Look() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"look.css":  Static("text/css; charset=utf-8", lookCSS),
		"forms.css": Static("text/css; charset=utf-8", formsCSS),
		"icon.svg":  Static("image/svg+xml", icon),
		"look.js":   Static("text/javascript; charset=utf-8", lookScript),
	}
}
