package httpapi

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
)

var schemathesisArgs = flag.String("schemathesis",
	fmt.Sprintf("--generation-deterministic --max-examples %d --phases examples,coverage,fuzzing", random.Times(4, 12)),
	"how much Schemathesis tries; for more: -schemathesis '--seed 7 --max-examples 200'")

// TestSchemathesis sends what the OpenAPI document allows, and what it does not, and has the answers
// compared with it.
func TestSchemathesis(t *testing.T) {
	testenv.UseClient(t, testenv.Schemathesis)
	s := newServer(t)
	s.put(t, "user:alice", "user-123")
	s.handlers.editor = hurried{s.handlers.editor}
	document, err := web.Document(openAPI)
	check(t, err)
	counts := webtest.CountStatuses(s.handler)
	mux := http.NewServeMux()
	mux.Handle("/openapi.json", document)
	mux.Handle("/", counts)
	live := httptest.NewServer(mux)
	defer live.Close()
	testenv.RunSchemathesis(t, live.URL+"/openapi.json", adminToken, *schemathesisArgs)
	counts.Want(t, "GET 200", "GET 400", "GET 404", "POST 201", "POST 400", "PUT 200", "PUT 400", "DELETE 404")
}

// A hurried editor is a fake: it does not wait until followers have seen a change. There are none.
type hurried struct{ editor }

func (h hurried) Apply(ctx context.Context, edits []table.Edit, by string, dryRun bool) ([]table.Outcome, error) {
	planned, err := h.editor.Apply(ctx, edits, by, true)
	if err != nil || dryRun {
		return planned, err
	}
	return h.Store().Apply(ctx, edits, by, 0, false)
}
