package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// notifyHijack returns w such that hijacked is called when its connection is taken over. It
// implements [http.Flusher] and [io.ReaderFrom] if w does, as handlers may ask for them.
func notifyHijack(w http.ResponseWriter, hijacked func()) http.ResponseWriter {
	if !canHijack(w) {
		return w
	}
	h := &hijackWriter{w, hijacked}
	_, flushes := w.(http.Flusher)
	_, reads := w.(io.ReaderFrom)
	switch {
	case flushes && reads:
		return struct {
			*hijackWriter
			flusher
			readerFrom
		}{h, flusher{w}, readerFrom{w}}
	case flushes:
		return struct {
			*hijackWriter
			flusher
		}{h, flusher{w}}
	case reads:
		return struct {
			*hijackWriter
			readerFrom
		}{h, readerFrom{w}}
	}
	return h
}

// canHijack reports whether w, or what it wraps, can hand its connection over.
func canHijack(w http.ResponseWriter) bool {
	for {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = inner.Unwrap()
	}
}

// A hijackWriter reports when its connection is taken over.
type hijackWriter struct {
	http.ResponseWriter
	hijacked func()
}

// Unwrap is for [http.ResponseController].
func (w *hijackWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteString implements [io.StringWriter].
func (w *hijackWriter) WriteString(s string) (int, error) { return io.WriteString(w.ResponseWriter, s) }

// Hijack implements [http.Hijacker].
func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked()
	}
	return conn, rw, err
}

type flusher struct{ w http.ResponseWriter }

// Flush implements [http.Flusher].
func (f flusher) Flush() { f.w.(http.Flusher).Flush() }

// FlushError is what an [http.ResponseController] asks for. Without it, handlers that stream would
// not learn that their client has left.
func (f flusher) FlushError() error { return http.NewResponseController(f.w).Flush() }

type readerFrom struct{ w http.ResponseWriter }

// ReadFrom implements [io.ReaderFrom].
func (r readerFrom) ReadFrom(src io.Reader) (int64, error) { return r.w.(io.ReaderFrom).ReadFrom(src) }
