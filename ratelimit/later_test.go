package ratelimit

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// remote has the store be one elsewhere.
func remote(c *Config) { c.Caps, c.Margin = modelCaps(false), time.Millisecond }

const failingError = failing +
	"  - {key: error, on_backend_error: error, rate_limit: {unit: minute, requests_per_unit: 2}}\n"

// TestLaterFormatsAreRefused: a counter that a later version has written refuses, whatever its rule says of failures,
// unless the setting has the rule decide.
func TestLaterFormatsAreRefused(t *testing.T) {
	later := backends.Unreadable(limit.ErrLater)
	for _, tc := range []struct {
		ask             string
		refused, byRule string
	}{
		{"allow=1", "OVER: over/0", "OK: ok"},
		{"deny=1", "OVER: over/0", "OVER: over/0"},
		{"error=1", "OVER: over/0", "error 14"},
		{"local=1", "OVER: over/0", "OK: ok/1"},
		{"silent=1", "OVER: over/0", "OK: ok"},
		{"shadow=1", "OK: ok", "OK: ok"},
	} {
		for _, byRule := range []bool{false, true} {
			h := setup(t, failingError, remote, func(c *Config) { c.LaterByRule = byRule })
			if !h.MetLater().IsZero() {
				t.Error("met before it was asked")
			}
			h.be.err = later
			want := tc.refused
			if byRule {
				want = tc.byRule
			}
			r := h.ask(desc(tc.ask))
			if want == "error 14" {
				if r.Err == nil {
					t.Errorf("%s by rule: no error", tc.ask)
				}
			} else {
				h.want(r, want)
			}
			if !r.Degraded || time.Since(h.MetLater()) > time.Minute {
				t.Errorf("%s, by rule %v: degraded %v, met %v", tc.ask, byRule, r.Degraded, h.MetLater())
			}
			if n := h.counts.count("degraded later_format deny") + h.counts.count("degraded later_format allow") +
				h.counts.count("degraded later_format local") + h.counts.count("degraded later_format error"); n != 1 {
				t.Errorf("%s, by rule %v: counts %v", tc.ask, byRule, h.counts.all())
			}
			if text := h.log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "docs/versions.md") {
				t.Errorf("%s, by rule %v: log %s", tc.ask, byRule, text)
			}
		}
	}
}

// TestLaterFormatsAreLoggedNowAndThen: one line, and then one in ten minutes, which says how many there were.
func TestLaterFormatsAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t, failing, remote)
		h.be.err = backends.Unreadable(limit.ErrLater)
		for range 25 * 60 {
			h.ask(desc("allow=1"))
			h.ask(desc("local=1"), desc("deny=1"))
			time.Sleep(time.Second)
		}
		text := h.log.String()
		if n := strings.Count(text, "level=ERROR"); n != 3 {
			t.Errorf("%d lines in 25 minutes, want 3", n)
		}
		if !strings.Contains(text, "suppressed=1199") {
			t.Error("the log does not say how many were not logged")
		}
	})
}
