package httpapi

import (
	"flag"
	"fmt"
	"net/http/httptest"
	"testing"

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
	s := serverWith(t, "memory://", exampleRules)
	s.take(t, "example|client=alice", 2)
	counts := webtest.CountStatuses(s.handler)
	live := httptest.NewServer(counts)
	defer live.Close()
	testenv.RunSchemathesis(t, live.URL+"/admin/openapi.json", adminToken, *schemathesisArgs)
	counts.Want(t, "GET 200", "GET 400", "GET 404", "POST 204", "POST 404")
}

// exampleRules are those that the examples of the document are about.
const exampleRules = `domain: example
descriptors:
  - {key: client, limits: [{name: per-client, algorithm: sliding_window, rate: 5/min}]}
`
