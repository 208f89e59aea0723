package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies/table"
)

// statuses are those of errors that are the client's.
var statuses = []struct {
	err    error
	status int
}{
	{table.ErrInvalid, http.StatusBadRequest},
	{table.ErrNotFound, http.StatusNotFound},
	{table.ErrExists, http.StatusConflict},
	{table.ErrTooMany, http.StatusConflict},
	{table.ErrVersion, http.StatusPreconditionFailed},
}

// Messages about the database, whose own words are for the log only.
const (
	awayMessage    = "the database of policies does not answer, or refuses; the log of headgate says why"
	unknownMessage = awayMessage + "; read the policy again to see whether it was changed"
	fixedMessage   = "the database of policies is read-only: policies stay in force as they are, and cannot be changed"
	slowMessage    = "the database of policies did not answer in time"
)

// A changeError is the error of a change whose outcome is not known.
type changeError struct{ error }

func (e changeError) Unwrap() error { return e.error }

// explain returns the status and the message of an error.
func explain(err error) (status int, message string) {
	if request, ok := errors.AsType[*web.RequestError](err); ok {
		return request.Status, request.Message
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status, err.Error()
		}
	}
	switch {
	case errors.Is(err, table.ErrReadOnly):
		message = fixedMessage
	case errors.As(err, new(changeError)):
		message = unknownMessage
	case errors.Is(err, context.DeadlineExceeded):
		message = slowMessage
	default:
		message = awayMessage
	}
	return http.StatusServiceUnavailable, message
}

// fail answers with the error, and logs it if it is the database's.
func (h *Handlers) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, message := explain(err)
	if status == http.StatusServiceUnavailable {
		if !errors.Is(err, table.ErrReadOnly) {
			w.Header().Set("Retry-After", "1")
		}
		if !errors.Is(err, context.Canceled) {
			h.log.Error("request for policies failed", "method", r.Method, "path", web.Clip(r.URL.Path),
				"by", web.CallerOf(r.Context()), "request_id", web.RequestID(r), "error", err)
		}
	}
	web.Error(w, status, message)
}
