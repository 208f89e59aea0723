package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/web"
	"github.com/headgate-rls/headgate/slots"
)

const adminToken = "token-of-the-tests"

// A scripted Scheduler answers what a test says, for errors that are hard to
// have otherwise, and notes what it was asked. Methods without a script panic.
type scripted struct {
	Scheduler
	assign func(context.Context, slots.Request) (slots.Result, error)
	batch  func(context.Context, []slots.Request) []slots.BatchResult
	put    func(context.Context, slots.NewConfig) (slots.Config, error)
	slot   func(context.Context, string) (slots.Slot, error)
	config func(context.Context, string) (slots.Config, error)
	since  func(context.Context, slots.Position, int) ([]slots.Slot, error)
	err    error // of Configs and Flush
}

func (s *scripted) Assign(ctx context.Context, r slots.Request) (slots.Result, error) {
	return s.assign(ctx, r)
}
func (s *scripted) AssignBatch(ctx context.Context, rs []slots.Request) []slots.BatchResult {
	return s.batch(ctx, rs)
}
func (s *scripted) PutConfig(ctx context.Context, c slots.NewConfig) (slots.Config, error) {
	return s.put(ctx, c)
}
func (s *scripted) Slot(ctx context.Context, id string) (slots.Slot, error) { return s.slot(ctx, id) }
func (s *scripted) Config(ctx context.Context, name string) (slots.Config, error) {
	return s.config(ctx, name)
}
func (s *scripted) SlotsSince(ctx context.Context, p slots.Position, n int) ([]slots.Slot, error) {
	return s.since(ctx, p, n)
}
func (s *scripted) Configs(context.Context) ([]slots.Config, error) { return nil, s.err }
func (s *scripted) Flush(context.Context) error                     { return s.err }

// A server has both handlers, as one listener may.
type server struct {
	handler http.Handler
	log     *logText
}

type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newServer(t testing.TB, s Scheduler, change ...func(*Config)) *server {
	t.Helper()
	guard, err := web.NewGuard(web.GuardConfig{Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	log := new(logText)
	c := Config{Scheduler: s, Guard: guard, Log: slog.New(slog.NewTextHandler(log, nil)), Timeout: 30 * time.Second}
	for _, f := range change {
		f(&c)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/", h.Admin())
	mux.Handle("/", h.API())
	return &server{mux, log}
}

// real returns a server with a Scheduler of its own, over SQLite.
func real(t testing.TB, change ...func(*Config)) *server {
	t.Helper()
	return newServer(t, newScheduler(t, slots.Settings{}), change...)
}

// withDefault is a real server with the documented default config.
func withDefault(t testing.TB) *server {
	t.Helper()
	s := real(t)
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"default","maxPerWindow":100,"windowSize":"PT4S"}`).is(t, 200)
	return s
}

// An answer is what a request got.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (s *server) do(t testing.TB, method, target, body string, header ...string) answer {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	data, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{w.Code, w.Result().Header, string(data)}
}

func (s *server) admin(t testing.TB, method, target, body string) answer {
	t.Helper()
	return s.do(t, method, target, body, "Authorization", "Bearer "+adminToken)
}

// is checks the status; an answer that is no success must have the form of all
// errors.
func (a answer) is(t testing.TB, code int) answer {
	t.Helper()
	if a.code != code {
		t.Fatalf("status %d, want %d; the answer is %s", a.code, code, a.body)
	}
	if code < 400 {
		return a
	}
	e := a.object(t)
	stamp, _ := e["timestamp"].(string)
	if _, err := time.Parse("2006-01-02T15:04:05Z", stamp); err != nil || len(e) != 4 || e["status"] != float64(code) ||
		e["error"] != http.StatusText(code) || e["message"] == "" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("the answer %s (%s) has not the form of errors", a.body, a.header.Get("Content-Type"))
	}
	return a
}

// says checks the message of an error.
func (a answer) says(t testing.TB, want string) answer {
	t.Helper()
	if message, _ := a.object(t)["message"].(string); !strings.Contains(message, want) {
		t.Errorf("the message is %q, want %q in it", message, want)
	}
	return a
}

func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("the answer %q is no JSON object: %v", a.body, err)
	}
	return v
}

// keys checks that an object has these fields and no others.
func keys(t testing.TB, v any, want ...string) {
	t.Helper()
	object, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("%v is no object", v)
	}
	for _, k := range want {
		if _, ok := object[k]; !ok {
			t.Errorf("%v has no %s", v, k)
		}
	}
	if len(object) != len(want) {
		t.Errorf("%v has other fields than %v", v, want)
	}
}
