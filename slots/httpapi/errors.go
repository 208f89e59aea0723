package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/slots"
)

// An explanation is an error as clients see it. It never has a database's own
// words.
type explanation struct {
	status  int
	message string
	retry   time.Duration // with 503: when it is worth asking again
}

// Messages of failures that are not the client's.
const (
	failedMessage      = "something failed inside headgate; its log says what"
	unavailableMessage = "the database is busy or cannot be reached at present; send the same request again"
	timeoutMessage     = "the request took too long; send the same request again"
	exhaustedMessage   = "no window in reach has room: the config's calendar opens none within 400 days, " +
		"or others hold them; send the same request again"
	pausedMessage     = "the config allows no events at present: its maxPerWindow is 0"
	overloadedMessage = "too many requests wait for slots already; send the same request again"
)

// leastRetry is the shortest wait that an answer names.
const leastRetry = time.Second

func explain(err error) explanation {
	var request *web.RequestError
	var field *slots.FieldError
	var config *slots.ConfigNotFoundError
	switch {
	case errors.As(err, &request):
		return explanation{request.Status, request.Message, 0}
	case errors.As(err, &field):
		return explanation{http.StatusBadRequest, field.Error(), 0}
	case errors.As(err, &config):
		return explanation{http.StatusNotFound, config.Error() + "; POST /admin/rate-limit/config makes one", 0}
	case errors.Is(err, slots.ErrSlotNotFound):
		return explanation{http.StatusNotFound, slots.ErrSlotNotFound.Error(), 0}
	case errors.Is(err, slots.ErrScopeInUse):
		return explanation{http.StatusConflict, slots.ErrScopeInUse.Error(), 0}
	case errors.Is(err, slots.ErrNeverOpen):
		return explanation{http.StatusConflict, slots.ErrNeverOpen.Error(), 0}
	case errors.Is(err, slots.ErrConflict):
		return explanation{http.StatusConflict, slots.ErrConflict.Error() + "; read it again, then decide", 0}
	}
	if message := passing(err); message != "" {
		return explanation{http.StatusServiceUnavailable, message, retryAfter(err)}
	}
	return explanation{http.StatusInternalServerError, failedMessage, 0}
}

// passing returns the message of an error after which it is worth asking again,
// or "".
func passing(err error) string {
	var retry *slots.RetryError
	switch {
	case errors.Is(err, slots.ErrExhausted):
		return exhaustedMessage
	case errors.Is(err, slots.ErrPaused):
		return pausedMessage
	case errors.Is(err, slots.ErrOverloaded):
		return overloadedMessage
	case errors.Is(err, slots.ErrClaimUnderWay):
		return slots.ErrClaimUnderWay.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return timeoutMessage
	case errors.As(err, &retry), slots.KindOf(err) != slots.Failed:
		return unavailableMessage
	}
	return ""
}

func retryAfter(err error) time.Duration {
	var retry *slots.RetryError
	if errors.As(err, &retry) {
		return max(retry.After, leastRetry)
	}
	return leastRetry
}

// fail answers with the error.
func (h *Handlers) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := explain(err)
	h.logFailure(r, e.status, err)
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(units.CeilSeconds(e.retry), 10))
	}
	web.Error(w, e.status, e.message)
}

// logFailure logs what is wrong with headgate or its database. Full windows, pauses
// and overload are none of that, and a client that is gone wants no answer.
func (h *Handlers) logFailure(r *http.Request, status int, err error) {
	switch {
	case status < 500, r.Context().Err() == context.Canceled:
	case errors.Is(err, slots.ErrExhausted), errors.Is(err, slots.ErrPaused), errors.Is(err, slots.ErrOverloaded):
	default:
		if allowed, skipped := h.often.Allow(); allowed {
			h.log.Error("request failed", "method", r.Method, "path", web.Clip(r.URL.Path), "status", status,
				"request_id", web.RequestID(r), "error", fmt.Sprint(err), "skipped", skipped)
		}
	}
}
