package httpapi

import (
	"cmp"
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
)

// leastRetry is the shortest wait that an answer names.
const leastRetry = time.Second

// answers are those to errors that say by themselves what they are: in their own words, where there are no others.
var answers = []struct {
	err     error
	status  int
	message string
}{
	{slots.ErrSlotNotFound, http.StatusNotFound, ""},
	{slots.ErrScopeInUse, http.StatusConflict, ""},
	{slots.ErrNeverOpen, http.StatusConflict, ""},
	{slots.ErrConflict, http.StatusConflict, slots.ErrConflict.Error() + "; read it again, then decide"},
	{slots.ErrExhausted, http.StatusServiceUnavailable, "no window in reach has room: the config's calendar opens none " +
		"within 400 days, or others hold them; send the same request again"},
	{slots.ErrPaused, http.StatusServiceUnavailable, "the config allows no events at present: its maxPerWindow is 0"},
	{slots.ErrOverloaded, http.StatusServiceUnavailable,
		"too many requests wait for slots already; send the same request again"},
	{slots.ErrClaimUnderWay, http.StatusServiceUnavailable, ""},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, timeoutMessage},
	{context.Canceled, http.StatusServiceUnavailable, timeoutMessage},
}

func explain(err error) explanation {
	var request *web.RequestError
	var field *slots.FieldError
	var config *slots.ConfigNotFoundError
	var late *slots.DelayError
	switch {
	case errors.As(err, &request):
		return explanation{status: request.Status, message: request.Message}
	case errors.As(err, &field):
		return explanation{status: http.StatusBadRequest, message: field.Error()}
	case errors.As(err, &config):
		return explanation{status: http.StatusNotFound, message: config.Error() +
			"; POST /admin/rate-limit/config makes one, and so does headgate slots config set"}
	case errors.As(err, &late):
		e := explanation{status: http.StatusServiceUnavailable, message: late.Error()}
		if errors.As(err, new(*slots.RetryError)) {
			e.retry = retryAfter(err)
		}
		if late.FreeMs != 0 {
			e.free = formatMilli(late.FreeMs)
		}
		return e
	}
	for _, a := range answers {
		if errors.Is(err, a.err) {
			e := explanation{status: a.status, message: cmp.Or(a.message, a.err.Error())}
			if a.status == http.StatusServiceUnavailable {
				e.retry = retryAfter(err)
			}
			return e
		}
	}
	if errors.As(err, new(*slots.RetryError)) || slots.KindOf(err) != slots.Failed {
		return explanation{status: http.StatusServiceUnavailable, message: unavailableMessage, retry: retryAfter(err)}
	}
	if bad, ok := errors.AsType[*slots.UnreadableError](err); ok {
		return explanation{status: http.StatusInternalServerError, message: bad.Error()}
	}
	return explanation{status: http.StatusInternalServerError, message: failedMessage}
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
// and overload are none of that, and a client that is gone wants no answer. What is refused for want of memory is
// logged where that is counted.
func (h *Handlers) logFailure(r *http.Request, status int, err error) {
	switch {
	case status < 500, r.Context().Err() == context.Canceled, errors.As(err, new(*web.RequestError)):
	case errors.Is(err, slots.ErrExhausted), errors.Is(err, slots.ErrPaused), errors.Is(err, slots.ErrOverloaded),
		errors.As(err, new(*slots.DelayError)):
	default:
		if allowed, skipped := h.often.Allow(); allowed {
			h.Log.Error("request failed", "method", r.Method, "path", web.Clip(r.URL.Path), "status", status,
				"request_id", web.RequestID(r), "error", fmt.Sprint(err), "skipped", skipped)
		}
	}
}
