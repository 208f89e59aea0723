package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
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
	log     *testenv.Log
}

func newServer(t testing.TB, s Scheduler, change ...func(*Config)) *server {
	t.Helper()
	guard, err := web.NewGuard(web.GuardConfig{Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	log := new(testenv.Log)
	c := Config{Scheduler: s, Log: slog.New(slog.NewTextHandler(log, nil)), Timeout: 30 * time.Second}
	for _, f := range change {
		f(&c)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/", guard.Wrap(h.Admin()))
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
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"default","maxPerWindow":100,"windowSize":"PT4S"}`).Is(t,
		200)
	return s
}

func (s *server) do(t testing.TB, method, target, body string, header ...string) webtest.Answer {
	t.Helper()
	return webtest.Send(t, t.Context(), s.handler, method, target, body, header...)
}

func (s *server) admin(t testing.TB, method, target, body string) webtest.Answer {
	t.Helper()
	return s.do(t, method, target, body, "Authorization", "Bearer "+adminToken)
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
