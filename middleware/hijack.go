package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// notifyHijack returns w such that hijacked is called when its connection is taken over. It
// implements [http.Flusher] if w does, as handlers may ask for it, and then CloseNotify likewise.
func notifyHijack(w http.ResponseWriter, hijacked func()) http.ResponseWriter {
	if !canHijack(w) {
		return w
	}
	h := &hijackWriter{w, hijacked}
	if _, flushes := w.(http.Flusher); !flushes {
		return h
	}
	if n, notifies := w.(closeNotifier); notifies {
		return closeNotifyWriter{flushWriter{h}, n}
	}
	return flushWriter{h}
}

// A closeNotifier is an [http.CloseNotifier]: deprecated, but gin panics without it in streams.
type closeNotifier interface{ CloseNotify() <-chan bool }

// A closeNotifyWriter is a flushWriter whose ResponseWriter is a closeNotifier.
type closeNotifyWriter struct {
	flushWriter
	closeNotifier
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

// ReadFrom implements [io.ReaderFrom], so that io.Copy uses the ResponseWriter's own ReadFrom, if it has one.
func (w *hijackWriter) ReadFrom(src io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, src) }

// A flushWriter is a hijackWriter whose ResponseWriter is an [http.Flusher].
type flushWriter struct{ *hijackWriter }

// Flush implements [http.Flusher].
func (w flushWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// FlushError is what an [http.ResponseController] asks for. Without it, handlers that stream would
// not learn that their client has left.
func (w flushWriter) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }
