package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

const documented = `{"eventId":"b6d1c7f0-3a52-4b0e-9f5d-0d8c2f1e7a44","configName":"default",` +
	`"requestedTime":"2025-06-01T12:00:00Z"}`

// TestDocumentedCall is the quick start of the documents.
func TestDocumentedCall(t *testing.T) {
	s := withDefault(t)
	first := s.do(t, "POST", "/api/v1/slots", documented).Is(t, 200)
	v := first.Object(t)
	keys(t, v, "eventId", "scheduledTime", "delayMs")
	text, _ := v["scheduledTime"].(string)
	at, err := time.Parse("2006-01-02T15:04:05.000Z", text)
	requested := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	if err != nil || at.Before(requested) || !at.Before(requested.Add(4*time.Second)) {
		t.Errorf("scheduledTime is %q (%v), want a time in UTC with milliseconds in the first window", text, err)
	}
	if v["eventId"] != "b6d1c7f0-3a52-4b0e-9f5d-0d8c2f1e7a44" ||
		v["delayMs"] != float64(at.Sub(requested).Milliseconds()) {
		t.Errorf("the answer is %s", first.Body)
	}
	if h := first.Header; h.Get("Idempotency-Replayed") != "" || h.Get("Content-Type") != "application/json" ||
		h.Get("Cache-Control") != "no-store" {
		t.Errorf("the headers are %v", h)
	}

	again := s.do(t, "POST", "/api/v1/slots", documented).Is(t, 200)
	if again.Body != first.Body || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %s %v, want %s and Idempotency-Replayed", again.Body, again.Header, first.Body)
	}
	// Another time and no config name, same slot, delay from the stored time.
	other := strings.NewReplacer("12:00:00Z", "18:00:00Z", `"configName":"default",`, "").Replace(documented)
	if again = s.do(t, "POST", "/api/v1/slots", other).Is(t, 200); again.Body != first.Body {
		t.Errorf("for another time: %s, want %s", again.Body, first.Body)
	}
}

// TestRequestedTimes: any offset, and rounding up below a microsecond.
func TestRequestedTimes(t *testing.T) {
	var got time.Time
	s := newServer(t, &scripted{assign: func(_ context.Context, r slots.Request) (slots.Result, error) {
		got = r.At
		return slots.Result{}, nil
	}})
	for text, want := range map[string]string{
		"2025-06-01T12:00:00Z":                "2025-06-01T12:00:00Z",
		"2025-06-01t12:00:00z":                "2025-06-01T12:00:00Z",
		"2025-06-01T12:00:00+05:30":           "2025-06-01T06:30:00Z",
		"2025-06-01T12:00:00.5-23:59":         "2025-06-02T11:59:00.5Z",
		"2025-06-01T12:00:00.000001Z":         "2025-06-01T12:00:00.000001Z",
		"2025-06-01T12:00:00.000000001Z":      "2025-06-01T12:00:00.000001Z",
		"2025-06-01T11:59:59.999999001+00:00": "2025-06-01T12:00:00Z",
		"1969-12-31T23:59:59.999999999Z":      "1970-01-01T00:00:00Z",
		"2024-02-29T00:00:00Z":                "2024-02-29T00:00:00Z",
	} {
		s.do(t, "POST", "/api/v1/slots", fmt.Sprintf(`{"eventId":"e","requestedTime":%q}`, text)).Is(t, 200)
		if got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s is %v, want %s", text, got, want)
		}
	}
}

// TestBadRequests: 400 with the field's name, and nothing has changed.
func TestBadRequests(t *testing.T) {
	s := withDefault(t)
	event := func(id, config, at string) string {
		return fmt.Sprintf(`{"eventId":%s,"configName":%s,"requestedTime":%s}`, id, config, at)
	}
	const ok, def, at = `"e"`, `"default"`, `"2025-06-01T12:00:00Z"`
	for _, c := range []struct{ name, body, want string }{
		{"no body", " ", "the body is empty"},
		{"no event", `{"requestedTime":"2025-06-01T12:00:00Z"}`, "eventId is missing"},
		{"no time", `{"eventId":"e"}`, "requestedTime is missing"},
		{"empty event", event(`""`, def, at), "eventId must not be empty"},
		{"long event", event(`"`+strings.Repeat("e", 51)+`"`, def, at), "eventId has 51 bytes"},
		{"long event in bytes", event(`"`+strings.Repeat("é", 26)+`"`, def, at), "eventId has 52 bytes"},
		{"NUL in the event", event(`"a\u0000"`, def, at), "eventId holds a control character"},
		{"blank event", event(`" \u2003"`, def, at), "eventId must not be blank"},
		{"empty config", event(ok, `""`, at), "configName must not be empty"},
		{"long config", event(ok, `"`+strings.Repeat("c", 129)+`"`, at), "configName has 129 bytes"},
		{"null event", event(`null`, def, at), "eventId must be a string, not null"},
		{"empty time", event(ok, def, `""`), "requestedTime must not be empty"},
		{"no time at all", event(ok, def, `"soon"`), `requestedTime is "soon"`},
		{"no offset", event(ok, def, `"2025-06-01T12:00:00"`), "requestedTime is"},
		{"a day that is not", event(ok, def, `"2025-02-29T12:00:00Z"`), "requestedTime is"},
		{"one digit of an hour", event(ok, def, `"2025-06-01T1:00:00Z"`), "requestedTime is"},
		{"a comma", event(ok, def, `"2025-06-01T12:00:00,5Z"`), "requestedTime is"},
		{"an offset that is not", event(ok, def, `"2025-06-01T12:00:00+24:00"`), "requestedTime is"},
		{"ten digits", event(ok, def, `"2025-06-01T12:00:00.0000000001Z"`), "nine digits"},
		{"too early", event(ok, def, `"1899-12-31T23:59:59Z"`), "requestedTime is outside"},
		{"the zero of Go's times", event(ok, def, `"0001-01-01T00:00:00Z"`),
			"requestedTime is outside the years 1900 to 9000"},
		{"too late", event(ok, def, `"9000-01-01T00:00:00Z"`), "requestedTime is outside"},
		{"a number for time", event(ok, def, `1748779200`), "requestedTime must be a string, not the number 1748779200"},
		{"misspelt field", `{"eventId":"e","requestedTime":"2025-06-01T12:00:00Z","configname":"x"}`,
			`did you mean "configName"?`},
	} {
		a := s.do(t, "POST", "/api/v1/slots", c.body, "Content-Type", "application/json").Is(t, 400)
		if message := a.Object(t)["message"].(string); !strings.Contains(message, c.want) {
			t.Errorf("%s: %q, want %q", c.name, message, c.want)
		}
	}
	if list := s.do(t, "GET", "/api/v1/slots", "").Is(t, 200); list.Body != "{\"slots\":[]}\n" {
		t.Errorf("there are slots now: %s", list.Body)
	}
}

func TestSizesAndKinds(t *testing.T) {
	s := withDefault(t)
	pad := strings.Repeat(" ", 64<<10-len(documented))
	s.do(t, "POST", "/api/v1/slots", documented+pad).Is(t, 200)
	s.do(t, "POST", "/api/v1/slots", documented+pad+" ").Is(t, 413).Says(t, "65536")
	s.do(t, "POST", "/api/v1/slots", documented, "Content-Type", "text/plain").Is(t, 415).Says(t, "application/json")
	s.do(t, "POST", "/api/v1/slots:batch", strings.Repeat(" ", 512<<10+1)).Is(t, 413).Says(t, "524288")
}

// TestFailuresHaveTheirStatus has every failure of a Scheduler as clients see it.
func TestFailuresHaveTheirStatus(t *testing.T) {
	database := errors.New("dial tcp 10.0.0.7:1521: password hunter2 refused")
	for _, c := range []struct {
		name   string
		err    error
		code   int
		retry  string // header
		says   string
		logged bool
	}{
		{"field", &slots.FieldError{Field: "eventId", Problem: "must not be empty"}, 400, "",
			"eventId must not be empty", false},
		{"config", &slots.ConfigNotFoundError{Name: "nowhere"}, 404, "", `no active config is named "nowhere"`, false},
		{"wrapped config", fmt.Errorf("assign: %w", &slots.ConfigNotFoundError{Name: "nowhere"}), 404, "",
			`named "nowhere"`, false},
		{"conflict", slots.ErrConflict, 409, "", "came first", false},
		{"exhausted", &slots.RetryError{After: 1500 * time.Millisecond, Err: slots.ErrExhausted}, 503, "2",
			"no window in reach has room", false},
		{"paused", &slots.RetryError{After: 5 * time.Second, Err: slots.ErrPaused}, 503, "5", "maxPerWindow is 0", false},
		{"overloaded", &slots.RetryError{After: time.Millisecond, Err: slots.ErrOverloaded}, 503, "1", "too many", false},
		{"overloaded, no time given", &slots.RetryError{Err: slots.ErrOverloaded}, 503, "1", "too many", false},
		{"database away", &slots.RetryError{After: 3 * time.Second,
			Err: &slots.StoreError{Kind: slots.Unavailable, Op: "begin", Err: database}}, 503, "3", "cannot be reached", true},
		{"passing, not wrapped", &slots.StoreError{Kind: slots.Passing, Op: "commit", Err: database}, 503, "1",
			"cannot be reached", true},
		{"too slow", context.DeadlineExceeded, 503, "1", "took too long", true},
		{"failed", &slots.StoreError{Kind: slots.Failed, Op: "insert", Err: database}, 500, "",
			"something failed inside", true},
		{"anything else", database, 500, "", "something failed inside", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t,
				&scripted{assign: func(context.Context, slots.Request) (slots.Result, error) { return slots.Result{}, c.err }})
			a := s.do(t, "POST", "/api/v1/slots", documented).Is(t, c.code).Says(t, c.says)
			if got := a.Header.Get("Retry-After"); got != c.retry {
				t.Errorf("Retry-After is %q, want %q", got, c.retry)
			}
			if strings.Contains(a.Body, "hunter2") || strings.Contains(a.Body, "10.0.0.7") {
				t.Errorf("the answer tells what the database said: %s", a.Body)
			}
			if lines := strings.Count(s.log.String(), "\n"); (lines == 1) != c.logged || lines > 1 {
				t.Errorf("the log is %q", s.log.String())
			}
			if c.logged && !strings.Contains(s.log.String(), c.err.Error()) {
				t.Errorf("the log %q lacks the error", s.log.String())
			}
		})
	}
}

// TestRequestsEndWithTheTimeout: a request ends with its time, whatever the Scheduler waits
// for.
func TestRequestsEndWithTheTimeout(t *testing.T) {
	s := newServer(t, &scripted{assign: func(ctx context.Context, _ slots.Request) (slots.Result, error) {
		<-ctx.Done()
		return slots.Result{}, ctx.Err()
	}}, func(c *Config) { c.Timeout = time.Millisecond })
	s.do(t, "POST", "/api/v1/slots", documented).Is(t, 503)
}

// TestClientGone: nothing is answered, and nothing is logged.
func TestClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := newServer(t, &scripted{assign: func(ctx context.Context, _ slots.Request) (slots.Result, error) {
		cancel()
		<-ctx.Done()
		return slots.Result{}, ctx.Err()
	}})
	r := httptest.NewRequest("POST", "/api/v1/slots", strings.NewReader(documented)).WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	s.handler.ServeHTTP(httptest.NewRecorder(), r)
	if log := s.log.String(); log != "" {
		t.Errorf("the log is %q", log)
	}
}

// TestFullAndPaused on a real Scheduler: 503 when no window is left, or the config is
// paused.
func TestFullAndPaused(t *testing.T) {
	s := newServer(t, newScheduler(t, slots.Settings{}))
	s.admin(t, "POST", "/admin/rate-limit/config",
		`{"configName":"default","maxPerWindow":1,"windowSize":"P1D","calendar":{"zone":"UTC","open":["mon 09:00-10:00"]}}`).
		Is(t, 409).Says(t, "calendar opens no window of windowSize within 400 days")
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"default","maxPerWindow":1,"windowSize":"PT1H",`+
		`"calendar":{"zone":"Asia/Kathmandu","open":["mon 09:00-10:00"]}}`).
		Is(t, 409).Says(t, "windows begin at multiples of their size since 1970-01-01T00:00:00Z")
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"default","maxPerWindow":1,"windowSize":"P1D"}`).Is(t,
		200)
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"none","maxPerWindow":0,"windowSize":"PT1S"}`).Is(t, 200)
	for i, want := range []int{503, 503} {
		a := s.do(t, "POST", "/api/v1/slots", fmt.Sprintf(`{"eventId":"e%d","requestedTime":"8999-12-31T23:59:59.999Z"}`,
			i)).Is(t, want)
		if want == 503 && a.Says(t, "no window in reach has room").Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
		}
	}
	a := s.do(t, "POST", "/api/v1/slots", `{"eventId":"p","configName":"none","requestedTime":"2025-06-01T12:00:00Z"}`).Is(
		t, 503).Says(t, "maxPerWindow is 0")
	if a.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	s.do(t, "POST", "/api/v1/slots", `{"eventId":"q","configName":"nowhere","requestedTime":"2025-06-01T12:00:00Z"}`).Is(t,
		404).Says(t, `no active config is named "nowhere"`)
}

// TestMaxDelay: if the first slot that is free is later than the config allows, the answer reports its window.
func TestMaxDelay(t *testing.T) {
	s := real(t)
	config := s.admin(t, "POST", "/admin/rate-limit/config",
		`{"configName":"default","maxPerWindow":1,"windowSize":"PT1M","maxDelay":"PT2M"}`).Is(t, 200)
	if config.Object(t)["maxDelay"] != "PT2M" {
		t.Errorf("the config is %s", config.Body)
	}
	at := time.Now().UTC().Truncate(time.Minute)
	event := func(id string) string {
		return fmt.Sprintf(`{"eventId":%q,"requestedTime":%q}`, id, at.Format(time.RFC3339))
	}
	s.do(t, "POST", "/api/v1/slots", event("a")).Is(t, 200)
	s.do(t, "POST", "/api/v1/slots", event("b")).Is(t, 200)
	a := s.do(t, "POST", "/api/v1/slots", event("c")).Is(t, 503).Says(t, "no window within the config's maxDelay (2m0s)")
	free := at.Add(2 * time.Minute).Format("2006-01-02T15:04:05.000Z")
	keys(t, a.Object(t), "status", "error", "message", "timestamp", "firstFree")
	if a.Object(t)["firstFree"] != free {
		t.Errorf("firstFree is %v, want %s", a.Object(t)["firstFree"], free)
	}
	if wait, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
		t.Errorf("Retry-After is %q: from then on an event that asks for the present has room within 2 min",
			a.Header.Get("Retry-After"))
	}
	far := at.Add(100 * 24 * time.Hour).Format(time.RFC3339)
	for _, id := range []string{"f1", "f2", "f3"} {
		a = s.do(t, "POST", "/api/v1/slots", fmt.Sprintf(`{"eventId":%q,"requestedTime":%q}`, id, far))
	}
	if got := a.Is(t, 503).Header.Get("Retry-After"); got != "" || a.Object(t)["firstFree"] == nil {
		t.Errorf("Retry-After is %q for an event that asks for a time to come: %s", got, a.Body)
	}
	list := s.batch(t, `{"events":[`+event("a")+","+event("d")+`]}`)
	if list[0]["status"] != 200.0 || list[1]["status"] != 503.0 || list[1]["firstFree"] != free {
		t.Errorf("the batch is %v", list)
	}
	if log := s.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("full windows are an error: %s", log)
	}
}

func TestNoDefaultConfig(t *testing.T) {
	real(t).do(t, "POST", "/api/v1/slots", `{"eventId":"q","requestedTime":"2025-06-01T12:00:00Z"}`).Is(t, 404).Says(t,
		`no active config is named "default"; POST /admin/rate-limit/config makes one, and so does headgate slots config set`)
}

// Clients send fields of their own, and null for what they leave out.
func TestUnknownFieldsAreIgnoredAndNamed(t *testing.T) {
	s := withDefault(t)
	a := s.do(t, "POST", "/api/v1/slots", `{"eventId":"e","configName":null,"requestedTime":"2025-06-01T12:00:00Z",`+
		`"prio":1,"Größe \r\nX: y":{"a":1}}`).Is(t, 200)
	if got, want := a.Header.Get("Ignored-Fields"), `prio, "Gr\u00f6\u00dfe \r\nX: y"`; got != want {
		t.Errorf("Ignored-Fields is %s, want %s", got, want)
	}
	a = s.do(t, "POST", "/api/v1/slots:batch", `{"events":[{"eventId":"f","requestedTime":"2025-06-01T12:00:00Z","prio":1},
		{"eventId":"g","requestedTime":"2025-06-01T12:00:00Z","prio":1,"configName":null}],"source":"x"}`).Is(t, 200)
	if got := a.Header.Get("Ignored-Fields"); got != "events[].prio, source" {
		t.Errorf("Ignored-Fields of a batch is %q", got)
	}
	if got := s.do(t, "POST", "/api/v1/slots", documented).Is(t, 200).Header.Values("Ignored-Fields"); len(got) != 0 {
		t.Errorf("Ignored-Fields is %q though nothing was ignored", got)
	}
	s.admin(t, "POST", "/admin/rate-limit/config",
		`{"configName":"default","maxPerWindow":1,"windowSize":"PT4S","prio":1}`).Is(t, 400).Says(t,
		"prio is an unknown field")
	s.admin(t, "POST", "/admin/rate-limit/config",
		`{"configName":"default","maxPerWindow":1,"windowSize":"PT4S","scope":null,"jitter":null,"calendar":null}`).Is(t, 200)
}
