package httpapi

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

var schemathesisArgs = flag.String("schemathesis",
	fmt.Sprint("--generation-deterministic --max-examples ", random.Times(5, 20)),
	"how much Schemathesis tries; for more: -schemathesis '--seed 7 --max-examples 500'")

// TestSchemathesis sends what the OpenAPI document allows, and what it does not,
// and has the answers compared with it: the statuses, headers and schemas, that
// what is wrong is refused and what is right is not.
func TestSchemathesis(t *testing.T) {
	testenv.UseClient(t, testenv.Schemathesis)
	s := withDefault(t)
	counts := countStatuses(s)
	l := serveLive(t, s)
	testenv.RunSchemathesis(t, l.url()+"/api/v1/openapi.json", adminToken, *schemathesisArgs)
	t.Logf("answers by operation and status:\n%s", counts)
	counts.expectDepth(t)
}

// statuses count answers by "METHOD path".
type statuses struct {
	mu   sync.Mutex
	seen map[string]map[int]int
}

// countStatuses has the server count its answers.
func countStatuses(s *server) *statuses {
	c := &statuses{seen: map[string]map[int]int{}}
	var all []web.Route
	h := &Handlers{}
	all = append(append(all, h.apiRoutes()...), h.adminRoutes()...)
	for _, r := range all {
		c.seen[r.Method+" "+r.Path] = map[int]int{}
	}
	next := s.handler
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusRecorder{ResponseWriter: w}
		next.ServeHTTP(recorder, r)
		for _, route := range all {
			if _, ok := route.Match(r); ok && route.Method == r.Method {
				c.mu.Lock()
				c.seen[route.Method+" "+route.Path][recorder.code]++
				c.mu.Unlock()
			}
		}
	})
	return c
}

type statusRecorder struct {
	http.ResponseWriter
	code int
}

func (r *statusRecorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

func (r *statusRecorder) Write(p []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (c *statuses) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for name, codes := range c.seen {
		fmt.Fprintf(&b, "%s %v\n", name, codes)
	}
	return b.String()
}

// expectDepth fails if an operation never succeeded, or those that take a body never
// refused one: then the run has shown little.
func (c *statuses) expectDepth(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, codes := range c.seen {
		if codes[200]+codes[204] == 0 {
			t.Errorf("%s never succeeded: %v", name, codes)
		}
		if hasBody := strings.HasPrefix(name, "POST") && !strings.HasSuffix(name, "/flush"); hasBody &&
			(codes[400] < 10 || codes[200] < 10) {
			t.Errorf("%s was tried too little: %v", name, codes)
		}
	}
}
