package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/sqlstore"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
)

var soon, check = dbtest.Soon, dbtest.Check

const adminToken = "token-of-the-tests"

// A server is the API behind its guard, with a database of its own.
type server struct {
	handler  http.Handler
	handlers *Handlers
	store    *sqlstore.Store
	log      *testenv.Log
	doc      *webtest.Document
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
	log := new(testenv.Log)
	handlers := New(table.NewEditor(store, nil), slog.New(slog.NewTextHandler(log, nil)))
	return &server{guard.Wrap(handlers), handlers, store, log, webtest.ReadDocument(t, openAPI)}
}

// put writes policies without the API, and without the wait of an editor.
func (s *server) put(t testing.TB, keys ...string) {
	t.Helper()
	edits := make([]table.Edit, len(keys))
	for i, k := range keys {
		edits[i] = table.Edit{Key: k, Figures: policies.Figures{Algorithm: limit.SlidingLog, Capacity: 2,
			Window: 60 * policies.One}}
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

// do sends a request with the token, and checks the answer against the OpenAPI document.
func (s *server) do(t testing.TB, method, target, body string, header ...string) webtest.Answer {
	t.Helper()
	return s.doWith(t, t.Context(), method, target, body, header...)
}

func (s *server) doWith(t testing.TB, ctx context.Context, method, target, body string,
	header ...string) webtest.Answer {
	t.Helper()
	header = append([]string{"Authorization", "Bearer " + adminToken}, header...)
	a := webtest.Send(t, ctx, s.handler, method, target, body, header...)
	r := httptest.NewRequest(method, target, nil)
	for _, route := range new(Handlers).routes() {
		if _, ok := route.Match(r); ok && route.Method == method {
			s.doc.AnswerFits(t, s.doc.Paths[route.Path][strings.ToLower(method)], a)
		}
	}
	return a
}
