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
	free    string        // the first window with room, if it is later than the config allows
}

// failure is an ErrorBody that may name a time to ask for.
type failure struct {
	web.ErrorBody
	FirstFree string `json:"firstFree,omitempty"`
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
		return explanation{status: request.Status, message: request.Message}
	case errors.As(err, &field):
		return explanation{status: http.StatusBadRequest, message: field.Error()}
	case errors.As(err, &config):
		return explanation{status: http.StatusNotFound, message: config.Error() +
			"; POST /admin/rate-limit/config makes one, and so does headgate slots config set"}
	case errors.Is(err, slots.ErrSlotNotFound):
		return explanation{status: http.StatusNotFound, message: slots.ErrSlotNotFound.Error()}
	case errors.Is(err, slots.ErrScopeInUse):
		return explanation{status: http.StatusConflict, message: slots.ErrScopeInUse.Error()}
	case errors.Is(err, slots.ErrNeverOpen):
		return explanation{status: http.StatusConflict, message: slots.ErrNeverOpen.Error()}
	case errors.Is(err, slots.ErrConflict):
		return explanation{status: http.StatusConflict, message: slots.ErrConflict.Error() + "; read it again, then decide"}
	}
	if late, ok := errors.AsType[*slots.DelayError](err); ok {
		e := explanation{status: http.StatusServiceUnavailable, message: late.Error(), retry: retryAfter(err)}
		if late.FreeMs != 0 {
			e.free = formatMilli(late.FreeMs)
		}
		return e
	}
	if message := passing(err); message != "" {
		return explanation{status: http.StatusServiceUnavailable, message: message, retry: retryAfter(err)}
	}
	return explanation{status: http.StatusInternalServerError, message: failedMessage}
}

// passing returns the message of an error after which it is worth asking again,
// or "".
func passing(err error) string {
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
	case errors.As(err, new(*slots.RetryError)), slots.KindOf(err) != slots.Failed:
		return unavailableMessage
	}
	return ""
}

func retryAfter(err error) time.Duration {
	if retry, ok := errors.AsType[*slots.RetryError](err); ok {
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
	web.JSON(w, e.status, failure{web.ErrorOf(e.status, e.message), e.free})
}

// logFailure logs what is wrong with headgate or its database. Full windows, pauses
// and overload are none of that, and a client that is gone wants no answer.
func (h *Handlers) logFailure(r *http.Request, status int, err error) {
	switch {
	case status < 500, r.Context().Err() == context.Canceled:
	case errors.Is(err, slots.ErrExhausted), errors.Is(err, slots.ErrPaused), errors.Is(err, slots.ErrOverloaded),
		errors.As(err, new(*slots.DelayError)):
	default:
		if allowed, skipped := h.often.Allow(); allowed {
			h.log.Error("request failed", "method", r.Method, "path", web.Clip(r.URL.Path), "status", status,
				"request_id", web.RequestID(r), "error", fmt.Sprint(err), "skipped", skipped)
		}
	}
}
