package middleware

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate"
	"github.com/headgate-rls/headgate/internal/units"
	"github.com/headgate-rls/headgate/internal/web"
)

// set sets the headers about the limit of d.
func (h Headers) set(header http.Header, d *headgate.Decision) {
	if h == XRateLimit || h == BothHeaders {
		header["X-Ratelimit-Limit"] = []string{strconv.FormatInt(d.Max, 10)}
		header["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(d.Remaining, 10)}
	}
	if h == IETF || h == BothHeaders {
		policy, state := d.IETF()
		header["Ratelimit-Policy"] = []string{policy}
		header["Ratelimit"] = []string{state}
	}
}

// refuse answers a refused request: with the response of its rule, else with 429.
func refuse(w http.ResponseWriter, d *headgate.Decision) {
	status := d.Status
	if status == 0 {
		status = http.StatusTooManyRequests
	}
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
