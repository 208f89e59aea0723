package ratelimit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const refusing = `
domain: d
descriptors:
- {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: tier, concurrency: [{threshold: 0, response: {statusCode: 429}}]}
`

// at has the log show this level and those above it.
func (h *harness) at(level slog.Level) func(*Config) {
	return func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: level}))
	}
}

// inTrace is a span of a caller in a trace.
type inTrace string

func (t inTrace) Trace() string { return string(t) }

// TestTraceOfARequest: the log has the trace of a caller in this process, and else that of a well-formed header.
func TestTraceOfARequest(t *testing.T) {
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for _, c := range []struct {
		parent Span
		header string
		want   string
	}{
		{inTrace("own"), "00-" + id + "-" + span + "-01", "own"},
		{nil, "00-" + id + "-" + span + "-01", id},
		{nil, "01-" + id + "-" + span + "-01-what-comes-later", id},
		{nil, "", ""},
		{nil, "00-" + id + "-" + span, ""},
		{nil, "00-" + id[1:] + "-" + span + "-01", ""},
		{nil, "00-" + id[1:] + "G-" + span + "-01", ""},
		{nil, "00-" + id + "-" + span[1:] + "-01", ""},
		{nil, "00-" + strings.Repeat("0", 32) + "-" + span + "-01", ""},
	} {
		if got := traceID(&Request{Parent: c.parent, TraceParent: c.header}); got != c.want {
			t.Errorf("%v %q: the trace %q, want %q", c.parent, c.header, got, c.want)
		}
	}
}

// refuse asks once as a caller who names the request.
func (h *harness) refuse(entries string) {
	h.Helper()
	req := &Request{Domain: "d", Descriptors: []Descriptor{desc(entries)}}
	req.SetRequestID("req-1")
	req.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	resp := new(Response)
	h.Decide(context.Background(), []*Request{req}, []*Response{resp})
	if !resp.OverLimit {
		h.Errorf("%s: %s", entries, summary(resp))
	}
}

// TestRefusalsInTheLogNameWhoAsked: a refusal in the log has the rule, the caller's names of the
// request, and the key, whose values it does not tell unless it should.
func TestRefusalsInTheLogNameWhoAsked(t *testing.T) {
	hash := func(name string) string {
		return fmt.Sprintf("key=sha256:%x", sha256.Sum256([]byte(name)))[:len("key=sha256:")+16]
	}
	for _, c := range []struct {
		entries string
		plain   bool
		want    []string
	}{
		{"none=alice x", false, []string{`msg="request refused" domain=d rule=d/none cause=limit retry_after=never`,
			hash("d|none=alice%20x") + " "}},
		{"none=alice", true, []string{`key="d|none=alice"`}},
		{"none=" + strings.Repeat("é", 1000), true, []string{`key="d|none=` + strings.Repeat("%C3%A9", 48)}},
		{"tier=alice", false, []string{`msg="request refused by a tier" domain=d rule=d/tier tier=0`, hash("d|tier=alice")}},
	} {
		h := setup(t, refusing, func(conf *Config) { conf.LogKeys = c.plain })
		h.refuse(c.entries)
		log := h.log.String()
		for _, want := range append(c.want, "request_id=req-1", "trace_id=4bf92f3577b34da6a3ce929d0e0e4736", "level=DEBUG") {
			if !strings.Contains(log, want) {
				t.Errorf("%.20s: no %s in the log:\n%s", c.entries, want, log)
			}
		}
		if strings.Contains(log, "alice") != (c.plain && strings.Contains(c.entries, "alice")) || len(log) > 1000 {
			t.Errorf("the log tells too much, or too little:\n%s", log)
		}
	}
}

// TestFailuresInTheLogNameWhoAsked: a decision that the backend could not make has the caller's names.
func TestFailuresInTheLogNameWhoAsked(t *testing.T) {
	h := setup(t, strings.Replace(refusing, "- {key: none,", "- {key: none, on_backend_error: deny,", 1))
	h.Fail(errors.New("away"))
	h.refuse("none=a")
	if !strings.Contains(h.log.String(), `msg="request refused" domain=d rule=d/none cause=backend_error`) {
		t.Errorf("no refusal with its cause in %s", h.log)
	}
	for line := range strings.Lines(h.log.String()) {
		if strings.Contains(line, `msg="decision degraded"`) {
			if !strings.Contains(line, "domain=d") ||
				!strings.Contains(line, "request_id=req-1 trace_id=4bf92f3577b34da6a3ce929d0e0e4736") {
				t.Errorf("the line is %s", line)
			}
			return
		}
	}
	t.Errorf("no line in %s", h.log)
}

// TestRefusalsAreLoggedAtInfoIfAskedFor: as many in a second as the Config says, and none at level
// info if it does not.
func TestRefusalsAreLoggedAtInfoIfAskedFor(t *testing.T) {
	h := setup(t, refusing)
	for _, most := range []int{0, 3} {
		h.log.Reset()
		conf := h.conf
		h.at(slog.LevelInfo)(&conf)
		conf.LogRefusals = most
		s, err := New(conf, mustLoad(t, refusing))
		if err != nil {
			t.Fatal(err)
		}
		h.Service = s
		if s.LogsRefusals() != (most > 0) {
			t.Errorf("%d: LogsRefusals is %v", most, s.LogsRefusals())
		}
		for range 200 {
			h.refuse("none=a")
		}
		if n := strings.Count(h.log.String(), "request refused"); n < most || n > 3*most {
			t.Errorf("%d lines, want %d in a second", n, most)
		}
	}
}

// TestNamesOfRequestsAreBounded: a name that is too long or no text is left out.
func TestNamesOfRequestsAreBounded(t *testing.T) {
	for _, id := range []string{strings.Repeat("x", maxMetadata+1), "\xff"} {
		var r Request
		r.SetRequestID(id)
		if r.RequestID != "" {
			t.Errorf("%.10q is kept", r.RequestID)
		}
	}
}
