package handshake

import (
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Failures counts the handshakes that fail, and logs them: at most one a second.
type Failures struct {
	log      *slog.Logger
	counters metrics.Counters
	row      metrics.Row
	limit    background.LogLimit
}

// NewFailures returns a count of none.
func NewFailures(log *slog.Logger) *Failures {
	f := &Failures{log: log, limit: background.LogLimit{PerSecond: 1}}
	f.row = f.counters.Row("headgate_tls_handshake_failures_total",
		"TLS handshakes that failed, by port and reason. Requests of such clients are not limited if they fail open.",
		metrics.Open("transport").Closed("reason", reasonNames()...))
	return f
}

// reasons say by a part of an error's text why a handshake failed. The first that matches holds; the last one always
// does.
var reasons = []struct {
	name, text string
	quiet      bool // it is not worth a warning
}{
	{"refused by the client", "remote error", false},
	{"expired client certificate", "certificate has expired", false},
	{"no client certificate", "client didn't provide a certificate", false},
	{"unknown authority", "unknown authority", false},
	{"client not admitted", "has no name that", true}, // that is logged with the names
	{"bad client certificate", "tls: failed to verify certificate", false},
	{"not TLS", "does not look like a TLS handshake", false},
	{"no h2", "protocol", false},
	{"too slow", "timeout", false},
	{"too slow", "deadline exceeded", false},
	{"closed", "EOF", true}, // as health checks of TCP do
	{"closed", "connection reset", true},
	{"closed", "closed", true},
	{"other", "", false},
}

// Failed notes that the handshake with a client failed.
func (f *Failures) Failed(transport string, client net.Addr, err error) {
	if f == nil || err == nil {
		return
	}
	text := err.Error()
	for _, r := range reasons {
		if !strings.Contains(text, r.text) {
			continue
		}
		f.counters.Of(transport, r.name).Inc()
		if r.quiet {
			return
		}
		if ok, skipped := f.limit.Allow(); ok {
			f.log.Warn("TLS handshake failed", "transport", transport, "client", client.String(), "reason", r.name,
				"error", text, "suppressed", skipped)
		}
		return
	}
}

// reasonNames are the names of reasons, each once.
func reasonNames() (names []string) {
	for _, r := range reasons {
		if !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}

// Rows returns the table of the metrics.
func (f *Failures) Rows() []metrics.Row { return []metrics.Row{f.row} }
