package client

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Local returns a transport for [Slots] that passes requests to a handler in this process.
func Local(h http.Handler) http.RoundTripper { return local{h} }

type local struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &written{header: http.Header{}, status: http.StatusOK}
	l.handler.ServeHTTP(w, r)
	return &http.Response{StatusCode: w.status, Status: fmt.Sprint(w.status, " ", http.StatusText(w.status)),
		Header: w.header, Body: io.NopCloser(&w.body), Request: r}, nil
}

// written records the answer of a handler.
type written struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *written) Header() http.Header         { return w.header }
func (w *written) WriteHeader(status int)      { w.status = status }
func (w *written) Write(b []byte) (int, error) { return w.body.Write(b) }
