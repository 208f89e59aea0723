package middleware

import (
	"cmp"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// set sets the headers about the limit of d. Two of their values are kept in space, which
// must stay as long as header does. most writes what a limit admits.
func (h Headers) set(header http.Header, d *headgate.Decision, space *[2]string, most *number) {
	if h == XRateLimit || h == BothHeaders {
		space[0], space[1] = most.format(d.Max), strconv.FormatInt(d.Remaining, 10)
		header["X-Ratelimit-Limit"], header["X-Ratelimit-Remaining"] = space[0:1:1], space[1:2:2]
	}
	if h == IETF || h == BothHeaders {
		policy, state := d.IETF()
		header["Ratelimit-Policy"] = []string{policy}
		header["Ratelimit"] = []string{state}
	}
}

// A number writes numbers. It keeps the first one: most programs have one limit for most
// requests.
type number struct{ first atomic.Pointer[written] }

type written struct {
	n    int64
	text string
}

func (w *number) format(n int64) string {
	first := w.first.Load()
	if first != nil && first.n == n {
		return first.text
	}
	text := strconv.FormatInt(n, 10)
	if first == nil {
		w.first.CompareAndSwap(nil, &written{n, text})
	}
	return text
}

// refuse answers a refused request: with the response of its rule, else with 429.
func refuse(w http.ResponseWriter, d *headgate.Decision) {
	status := cmp.Or(d.Status, http.StatusTooManyRequests)
	h := w.Header()
	message := http.StatusText(status)
	if d.RetryAfter > 0 {
		seconds := max(units.CeilSeconds(d.RetryAfter), 1)
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		message += ": try again in " + units.Format(time.Duration(seconds)*time.Second)
	}
	if d.Status == 0 && d.Body == "" && len(d.Headers) == 0 {
		web.Error(w, status, message)
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	for _, own := range d.Headers {
		h.Set(own.Name, own.Value)
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(d.Body)) // fails only if the client is gone
}
