package httpapi

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

var schemathesisArgs = flag.String("schemathesis", "--generation-deterministic --max-examples 40",
	"how much Schemathesis tries; for more: -schemathesis '--seed 7 --max-examples 500'")

// TestSchemathesis sends what the OpenAPI document allows, and what it does not,
// and has the answers compared with it: the statuses, headers and schemas, that
// what is wrong is refused and what is right is not.
func TestSchemathesis(t *testing.T) {
	program := testenv.UseClient(t, testenv.Schemathesis)
	hooks, err := filepath.Abs("testdata/hooks.py")
	if err != nil {
		t.Fatal(err)
	}
	s := withDefault(t)
	counts := countStatuses(s)
	l := serveLive(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args := append([]string{"run", l.url() + "/api/v1/openapi.json", "--checks", "all", "--workers", "1",
		"--request-timeout", "60", "--suppress-health-check", "all", "--no-color",
		"--header", "Authorization: Bearer " + adminToken}, strings.Fields(*schemathesisArgs)...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "SCHEMATHESIS_HOOKS="+hooks, "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("schemathesis: %v\n%s", err, out)
	}
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
	var all []route
	h := &Handlers{}
	all = append(append(all, h.apiRoutes()...), h.adminRoutes()...)
	for _, r := range all {
		c.seen[r.method+" "+r.path] = map[int]int{}
	}
	next := s.handler
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusRecorder{ResponseWriter: w}
		next.ServeHTTP(recorder, r)
		for _, route := range all {
			if _, ok := match(route.path, r.URL.EscapedPath()); ok && route.method == r.Method {
				c.mu.Lock()
				c.seen[route.method+" "+route.path][recorder.code]++
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
		if hasBody := strings.HasPrefix(name, "POST") && !strings.HasSuffix(name, "/flush"); hasBody && (codes[400] < 10 || codes[200] < 10) {
			t.Errorf("%s was tried too little: %v", name, codes)
		}
	}
}
