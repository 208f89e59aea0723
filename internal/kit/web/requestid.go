package web

import (
	"net/http"
	"strings"
)

// RequestID returns what a request is called by who sent it, for logs: its X-Request-Id, or else the
// trace of its traceparent; "" if it has neither. The sender chooses it, and it proves nothing.
func RequestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return Clip(id)
	}
	const traceLen = 32
	if parts := strings.Split(r.Header.Get("Traceparent"), "-"); len(parts) >= 4 && len(parts[1]) == traceLen {
		return Clip(parts[1])
	}
	return ""
}
