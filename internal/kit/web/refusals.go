package web

import (
	"log/slog"
	"net/http"
	"strconv"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Refusals count the requests that guards do not let in, and log them: at most one a second, never with a token.
type Refusals struct {
	log      *slog.Logger
	limit    background.LogLimit
	counters metrics.Counters
	row      metrics.Row
}

// NewRefusals returns a count of none.
func NewRefusals(log *slog.Logger) *Refusals {
	r := &Refusals{log: log, limit: background.LogLimit{PerSecond: 1}}
	r.row = r.counters.Row(refusedRow.Name, refusedRow.Help, refusedRow.Labels)
	for _, at := range refusalReasons {
		r.counters.Of(strconv.Itoa(at.code), at.reason)
	}
	return r
}

// note notes that a request was refused. Nil ignores it.
func (r *Refusals) note(req *http.Request, code int, reason string) {
	if r == nil {
		return
	}
	r.counters.Of(strconv.Itoa(code), reason).Inc()
	if ok, skipped := r.limit.Allow(); ok {
		r.log.Warn("request to a guarded path refused", "client", req.RemoteAddr, "path", printable(req.URL.Path),
			"code", code, "reason", reason, "suppressed", skipped)
	}
}
