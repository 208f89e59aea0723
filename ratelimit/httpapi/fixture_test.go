package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	_ "github.com/headgate-rls/headgate/backends/redis"
	_ "github.com/headgate-rls/headgate/backends/sqlstore"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/fleet"
	"github.com/headgate-rls/headgate/ratelimit/insight"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
)

const adminToken = "token-of-the-tests"

const rules = simpleRules + `
  - key: plan
    limits:
      - {name: hourly, algorithm: token_bucket, rate: 100/h, burst: 20}
      - {name: daily, algorithm: fixed_window, rate: 30/d}
  - key: model
    concurrency: [{threshold: 2, response: {statusCode: 429}}]
  - {key: free, rate_limit: {unlimited: true}}
  - key: v1.2
    descriptors:
      - {key: path, value: /pay, rate_limit: {unit: day, requests_per_unit: 3}}
      - {key: path, value: /get, rate_limit: {unit: day, requests_per_unit: 4}}
resources:
  - path: /v1/pay
    method: GET
    rate_limit: {unit: hour, requests_per_unit: 7}
`

// simpleRules are those that every store can keep.
const simpleRules = `domain: shop
descriptors:
  - key: user
    policy: user:{user}
    rate_limit: {unit: hour, requests_per_unit: 10}`

// A server is the API behind its guard, with a store of its own.
type server struct {
	watch    *insight.Watch
	handler  http.Handler
	service  *ratelimit.Service
	stack    *stack.Stack
	policies *policies.Set
	log      *testenv.Log
	doc      *webtest.Document
	handlers *Handlers
	asked    atomic.Int64 // how often the store was
	fail     error        // of the store, unless nil
	parts    []web.Part
	draining bool
}

func newServer(t testing.TB, url string) *server {
	t.Helper()
	return serverWith(t, url, rules)
}

func serverWith(t testing.TB, url, rules string) *server {
	t.Helper()
	s := &server{log: new(testenv.Log), doc: webtest.ReadDocument(t, openAPI), policies: new(policies.Set)}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	var err error
	s.stack, err = stack.New(t.Context(), url, stack.Options{Timeout: 5 * time.Second, Log: log})
	must(t, err)
	t.Cleanup(func() { must(t, s.stack.Close()) })
	_, err = s.stack.Migrate(t.Context())
	must(t, err)
	set, problems := rulefile.Load([]rulefile.Source{{Name: "rules.yaml", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	s.watch = insight.NewWatch()
	s.service, err = ratelimit.New(ratelimit.Config{
		Backend: watched{s.stack.Backend, s}, Caps: s.stack.Caps, Local: s.stack.Local, Now: s.stack.Now, Log: log,
		Timeout: 5 * time.Second, Policies: s.policies, Sinks: []ratelimit.Sink{s.watch},
	}, set)
	must(t, err)
	guard, err := web.NewGuard(web.GuardConfig{Token: adminToken})
	must(t, err)
	document, err := web.Document(openAPI)
	must(t, err)
	s.handlers = New(Config{
		Service: s.service, Watch: s.watch, List: s.stack.List, Version: "1.2.3", Log: log,
		Fleet: s.fleet(1, s.stack.Peers()),
		Ready: web.Readiness{Draining: func() bool { return s.draining }, Parts: func() []web.Part { return s.parts }},
	})
	s.handler = guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/admin/openapi.json" {
			document.ServeHTTP(w, r)
			return
		}
		s.handlers.ServeHTTP(w, r)
	}))
	return s
}

// watched counts how often a store is asked, and lets it fail.
type watched struct {
	backends.Backend
	of *server
}

func (w watched) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	w.of.asked.Add(1)
	if w.of.fail != nil {
		backends.Fail(out, w.of.fail)
		return
	}
	w.Backend.Take(ctx, reqs, out)
}

// awayRegistry is that of a store that does not answer.
type awayRegistry struct{ backends.Registry }

func (awayRegistry) List(context.Context, string) ([]backends.Row, error) {
	return nil, backends.ErrUnavailable
}

// fleet is the replicas as one of them sees them.
func (s *server) fleet(replica uint32, shared backends.Registry) *fleet.Fleet {
	return fleet.New(fleet.Config{Watch: s.watch, Registry: shared,
		Replica: replica, Name: "host",
		Log: slog.New(slog.DiscardHandler)})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take has requests of one unit decided, and returns how many pass. A key is as in the API.
func (s *server) take(t testing.TB, key string, n int) (passed int) {
	t.Helper()
	domain, entries, err := parseName(key)
	must(t, err)
	for range n {
		req := &ratelimit.Request{Domain: domain, InProcess: true, Descriptors: []ratelimit.Descriptor{{Entries: entries}}}
		resp := new(ratelimit.Response)
		s.service.Decide(t.Context(), []*ratelimit.Request{req}, []*ratelimit.Response{resp})
		if resp.Err != nil || resp.Degraded {
			t.Fatalf("%s: %v, degraded %v", key, resp.Err, resp.Degraded)
		}
		if !resp.OverLimit {
			passed++
		}
	}
	return passed
}

// do sends a request with the token, and checks the answer against the OpenAPI document.
func (s *server) do(t testing.TB, method, target, body string) webtest.Answer {
	t.Helper()
	a := webtest.Send(t, t.Context(), s.handler, method, target, body, "Authorization", "Bearer "+adminToken)
	r := httptest.NewRequest(method, target, nil)
	for _, route := range new(Handlers).routes() {
		if _, ok := route.Match(r); ok && route.Method == method {
			s.doc.AnswerFits(t, s.doc.Paths[route.Path][strings.ToLower(method)], a)
		}
	}
	return a
}
