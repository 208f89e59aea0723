package telemetry

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/observe"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/ratelimit"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("no line %q", l)
		}
	}
}

// shop has two rules, of which tenant has the values of requests in its label.
const shop = `
domain: shop
descriptors:
  - {key: tenant, detailed_metric: true, limits: [{name: burst, algorithm: token_bucket, rate: 100/s, burst: 250}, {algorithm: sliding_log, limit: 50, window: 1h}]}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 7}, concurrency: [{threshold: 5, response: {statusCode: 429}}]}
`

func rulesOf(t *testing.T, text string) *descriptors.Set {
	t.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "rules.yaml", Data: []byte(text)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	return set
}

func TestMetricsShowWhatWasCounted(t *testing.T) {
	m := New("v1")
	m.Rule("shop", "tenant")[ratelimit.OutcomeOK].Count(1)
	m.Rule("shop", "tenant")[ratelimit.OutcomeOK].Count(1)
	m.Rule("shop", "tenant")[ratelimit.OutcomeOverLimit].Count(1)
	m.Degraded("overload", "deny")
	m.Requests("grpc")(300*time.Microsecond, ratelimit.CallOverLimit, 1)
	m.RulesLoaded(rulesOf(t, shop), time.Unix(1000, 0))
	m.RulesFailed()
	m.AddFigures([]backends.Figure{backends.Gauge("headgate_x", "x", func() int { return 3 })})
	text := scrape(t, m)
	wantLines(t, text,
		`headgate_decisions_total{domain="shop",outcome="ok",rule="tenant"} 2`,
		`headgate_decisions_total{domain="shop",outcome="over_limit",rule="tenant"} 1`,
		`headgate_degraded_requests_total{cause="overload",policy="deny"} 1`,
		`headgate_request_duration_seconds_bucket{result="over_limit",transport="grpc",le="0.0005"} 1`,
		`headgate_request_duration_seconds_bucket{result="over_limit",transport="grpc",le="0.00025"} 0`,
		`headgate_rules 2`, `headgate_rules_generation 1`, `headgate_rules_loaded_timestamp_seconds 1000`,
		`headgate_rules_loads_total{result="error"} 1`, `headgate_build_info{version="v1"} 1`, `headgate_x 3`)
	if strings.Contains(text, `outcome="unlimited"`) {
		t.Error("a series for what never happened")
	}
}

// Labels that clients can influence are bounded.
func TestLabelsAreBounded(t *testing.T) {
	m := New("v1")
	for i := range maxRules + 500 {
		m.Rule("d", fmt.Sprint("rule", i))[ratelimit.OutcomeOK].Count(1)
	}
	text := scrape(t, m)
	if n := strings.Count(text, "headgate_decisions_total{"); n > maxRules+1 {
		t.Errorf("%d series, at most %d", n, maxRules+1)
	}
	wantLines(t, text, `headgate_decisions_total{domain="",outcome="ok",rule="(other)"} 500`)
}

func TestBackendMetrics(t *testing.T) {
	m := New("v1")
	r := m.Backend("redis")
	var failed [observe.NumClasses]int
	r.Take(5, time.Millisecond, failed)
	failed[observe.Unavailable] = 2
	r.Take(3, time.Second, failed)
	r.Call(observe.Ping, time.Millisecond, observe.None)
	r.Call(observe.Forget, time.Millisecond, observe.Corrupt)
	wantLines(t, scrape(t, m),
		`headgate_backend_requests_total{backend="redis"} 8`,
		`headgate_backend_call_duration_seconds_count{backend="redis",call="take"} 2`,
		`headgate_backend_call_duration_seconds_count{backend="redis",call="ping"} 1`,
		`headgate_backend_errors_total{backend="redis",call="take",class="unavailable"} 2`,
		`headgate_backend_errors_total{backend="redis",call="forget",class="corrupt"} 1`,
		`headgate_backend_errors_total{backend="redis",call="ping",class="unavailable"} 0`)
}

// TestScrapesAreBounded: clients that do not read their answers keep the metrics in memory a few times, not
// as often as they ask.
func TestScrapesAreBounded(t *testing.T) {
	h := New("v1").Handler()
	unread, read := make(chan struct{}), make(chan struct{})
	var slow sync.WaitGroup
	for range maxScrapes {
		slow.Go(func() {
			h.ServeHTTP(&slowReader{ResponseRecorder: httptest.NewRecorder(), unread: unread, read: read}, httptest.NewRequest("GET", "/metrics", nil))
		})
	}
	for range maxScrapes {
		<-unread
	}
	for _, want := range []int{503, 200} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
		if want == 503 {
			close(read)
			slow.Wait()
		}
	}
}

// A slowReader does not read its answer for a while.
type slowReader struct {
	*httptest.ResponseRecorder
	begun        sync.Once
	unread, read chan struct{}
}

func (s *slowReader) Write(p []byte) (int, error) {
	s.begun.Do(func() { s.unread <- struct{}{} })
	<-s.read
	return s.ResponseRecorder.Write(p)
}
