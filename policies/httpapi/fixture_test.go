package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/sqlstore"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

var soon, check = dbtest.Soon, dbtest.Check

const adminToken = "token-of-the-tests"

// A server is the API behind its guard, with a database of its own.
type server struct {
	handler http.Handler
	store   *sqlstore.Store
	log     *serving.Log
	doc     *document
}

func newServer(t testing.TB) *server {
	t.Helper()
	testenv.UseSQLite(t)
	s := serverOn(t, "sqlite:"+filepath.Join(t.TempDir(), "policies.db"))
	_, err := s.store.Migrate(soon(t))
	check(t, err)
	return s
}

func serverOn(t testing.TB, url string) *server {
	t.Helper()
	store, err := sqlstore.Open(sqlstore.Config{URL: url})
	check(t, err)
	t.Cleanup(func() { check(t, store.Close()) })
	guard, err := web.NewGuard(web.GuardConfig{Token: adminToken})
	check(t, err)
	log := new(serving.Log)
	handlers := New(policies.NewEditor(store, nil), slog.New(slog.NewTextHandler(log, nil)))
	return &server{guard.Wrap(handlers), store, log, readDocument(t)}
}

// put writes policies without the API, and without the wait of an editor.
func (s *server) put(t testing.TB, keys ...string) {
	t.Helper()
	edits := make([]policies.Edit, len(keys))
	for i, k := range keys {
		edits[i] = policies.Edit{Key: k, Figures: policies.Figures{Algorithm: limit.SlidingLog, Capacity: 2, Window: 60 * policies.One}}
	}
	_, err := s.store.Apply(soon(t), edits, "test", 0, false)
	check(t, err)
}

// state is all that is stored, as text.
func (s *server) state(t testing.TB) string {
	t.Helper()
	state, err := s.store.State(soon(t))
	check(t, err)
	all, err := s.store.List(soon(t), "", "", 1000)
	check(t, err)
	text, err := json.Marshal([]any{state.Generation, all})
	check(t, err)
	return string(text)
}

// audit returns the lines of the log about changes.
func (s *server) audit() (lines []string) {
	for line := range strings.SplitSeq(s.log.String(), "\n") {
		if strings.Contains(line, `msg="policy changed"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// An answer is what a request got.
type answer struct {
	code   int
	header http.Header
	body   string
}

// do sends a request with the token, and checks the answer against the OpenAPI document.
func (s *server) do(t testing.TB, method, target, body string, header ...string) answer {
	t.Helper()
	return s.doWith(t, t.Context(), method, target, body, header...)
}

func (s *server) doWith(t testing.TB, ctx context.Context, method, target, body string, header ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	data, err := io.ReadAll(w.Result().Body)
	check(t, err)
	a := answer{w.Code, w.Result().Header, string(data)}
	for _, route := range new(Handlers).routes() {
		if _, ok := route.Match(r); ok && route.Method == method {
			s.doc.answerFits(t, s.doc.Paths[route.Path][strings.ToLower(method)], a)
		}
	}
	return a
}

// is checks the status; an answer that is no success must have the form of all errors.
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
		e["error"] != http.StatusText(code) || e["message"] == "" {
		t.Errorf("the answer %s has not the form of errors", a.body)
	}
	return a
}

// says checks that the body has a text.
func (a answer) says(t testing.TB, want string) answer {
	t.Helper()
	if !strings.Contains(a.body, want) {
		t.Errorf("the answer is %s, want %q in it", a.body, want)
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
