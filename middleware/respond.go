package middleware

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate"
	"github.com/headgate-rls/headgate/internal/units"
	"github.com/headgate-rls/headgate/internal/web"
)

// set sets the headers about the limit of d. Two of their values are kept in space, which
// must stay as long as header does.
func (h Headers) set(header http.Header, d *headgate.Decision, space *[2]string) {
	if h == XRateLimit || h == BothHeaders {
		var buf [40]byte // for two numbers
		first := strconv.AppendInt(buf[:0], d.Max, 10)
		both := string(strconv.AppendInt(first, d.Remaining, 10))
		space[0], space[1] = both[:len(first)], both[len(first):]
		header["X-Ratelimit-Limit"], header["X-Ratelimit-Remaining"] = space[0:1:1], space[1:2:2]
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
