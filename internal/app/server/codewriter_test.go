package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCodeWriter: the status that was sent counts, whatever the handler sets before and after it.
func TestCodeWriter(t *testing.T) {
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  int
	}{
		"set": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTooManyRequests)
		}, http.StatusTooManyRequests},
		"set too late": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "an answer")
			w.WriteHeader(http.StatusInternalServerError)
		}, http.StatusOK},
		"set twice": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			w.WriteHeader(http.StatusOK)
		}, http.StatusBadRequest},
	} {
		w := &codeWriter{ResponseWriter: httptest.NewRecorder()}
		c.serve(w, nil)
		if w.code != c.want {
			t.Errorf("%s: status %d, want %d", name, w.code, c.want)
		}
	}
}
