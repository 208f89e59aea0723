package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Messages about the store, whose own words are for the log only.
const (
	awayMessage    = "the store of the counters does not answer, or refuses; the log of headgate says why"
	unknownMessage = awayMessage + "; read the key again to see whether it was reset"
)

// A resetError is the error of a reset whose outcome is not known.
type resetError struct{ error }

func (e resetError) Unwrap() error { return e.error }

// explain returns the status and the message of an error.
func explain(err error) (status int, message string) {
	var request *web.RequestError
	var call *ratelimit.Error
	var reset resetError
	switch {
	case errors.As(err, &request):
		return request.Status, request.Message
	case errors.As(err, &call): // there are no rules yet
		return http.StatusServiceUnavailable, call.Message
	case errors.Is(err, backends.ErrUnsupported):
		return http.StatusNotImplemented, err.Error()
	case errors.As(err, &reset):
		return http.StatusServiceUnavailable, unknownMessage
	}
	return http.StatusServiceUnavailable, awayMessage
}

// fail answers with the error, and logs it if it is the store's.
func (h *Handlers) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, message := explain(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
		if !errors.Is(err, context.Canceled) {
			h.Log.Error("request about counters failed", "method", r.Method, "path", web.Clip(r.URL.Path),
				"by", web.CallerOf(r.Context()), "request_id", web.RequestID(r), "error", err)
		}
	}
	web.Error(w, status, message)
}
