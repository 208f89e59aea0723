package chart

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestQueriesReturnDataInPrometheus: a real Prometheus scrapes a headgate behind a real
// Envoy through an outage of its Redis. Every query of the board, and of the variables,
// returns data, and every expression of the rules is evaluated without an error; the alert
// about the backend fires.
func TestQueriesReturnDataInPrometheus(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("watches an outage for half a minute")
	}
	testenv.Require(t, testenv.Prometheus)
	server := testenv.StartRedis(t)
	dir := t.TempDir()
	rules := filepath.Join(dir, "shop.yaml")
	write(t, rules, boardRules)
	h := testenv.StartHeadgate(t, program, "--rules", rules, "--backend", server.URL(), "--backend-timeout", "100ms",
		"--lease-ttl", "2s",
		"--slots", "sqlite:"+filepath.Join(dir, "slots.db"), "--slots-seed", "100/PT4S", "--policies",
		"sqlite:"+filepath.Join(dir, "policies.db"))
	application := testenv.FreePort(t)
	serveApplication(t, application)
	code, config, errOut := testenv.RunProgram(t, program, nil, "envoy", rules, "--partial", "--address", h.GRPC,
		"--services", h.Services,
		"--upstream", fmt.Sprintf("127.0.0.1:%d", application), "--listen", "0", "--admin", "127.0.0.1:0",
		"--timeout", "50ms")
	if code != 0 {
		t.Fatal(errOut)
	}
	envoy := testenv.StartEnvoy(t, "1.40.0", config)

	ruleText, alerts := readRules(t)
	ruleFile := filepath.Join(dir, "alerts.yaml")
	write(t, ruleFile, strings.NewReplacer("[1m]", "[5s]", "for: 30s", "for: 1s").Replace(ruleText))
	prom := testenv.StartPrometheus(t, fmt.Sprintf(`
global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - {job_name: headgate, static_configs: [{targets: ["%s"], labels: {namespace: limits}}]}
  - {job_name: envoy, metrics_path: /stats/prometheus, static_configs: [{targets: ["%s"]}]}
`, ruleFile, h.Debug, envoy.AdminAddr))

	stop := load(t, h, "http://"+strings.Replace(envoy.ListenerAddr("ingress"), "0.0.0.0", "127.0.0.1", 1))
	defer stop()
	unseen := map[string]bool{}
	for _, row := range readBoard(t).Rows {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				unseen[q.expression()] = true
			}
		}
	}
	unseen[newRules] = true
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		if time.Since(deadline.Add(-2*time.Minute)) > 10*time.Second && server.Running() {
			server.Kill()
			pauseFor(t, h.PID(), time.Second) // Envoys see calls that fail
			write(t, rules, boardRules+"  - {path: /new, concurrency: [{threshold: 1, response: {statusCode: 429}}]}\n")
		}
		for expression := range unseen {
			samples, err := prom.Query(concrete(expression))
			if err != nil {
				t.Fatalf("%s: %v", expression, err)
			}
			for _, s := range samples {
				if s.Value != "NaN" {
					delete(unseen, expression)
				}
			}
		}
		firing, err := prom.Query(`ALERTS{alertname="HeadgateBackendAway",alertstate="firing"}`)
		if err != nil {
			t.Fatal(err)
		}
		if len(unseen) == 0 && len(firing) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("firing: %v; these queries returned nothing:", firing)
			for expression := range unseen {
				t.Error(expression)
			}
			break
		}
	}
	for _, c := range choices {
		values, err := prom.LabelValues(c.label, concrete(c.series))
		if want := map[string]string{"namespace": "limits", "job": "headgate", "domain": "shop",
			"rule": "few"}[c.label]; err != nil || !slices.Contains(values, want) {
			t.Errorf("the variable %s has the values %v, want %s among them: %v", c.label, values, want, err)
		}
	}
	for _, group := range alerts.Groups {
		for _, r := range group.Rules {
			if _, err := prom.Query(r.Expr); err != nil {
				t.Errorf("%s%s: %v", r.Alert, r.Record, err)
			}
		}
	}
}

// concrete puts in what Grafana does.
func concrete(expression string) string {
	return strings.NewReplacer("$namespace", ".*", "$job", ".*", "$domain", ".*", "$rule", ".*", "$__rate_interval", "30s",
		"$__interval", "60s").Replace(expression)
}

// boardRules make something for each panel.
const boardRules = `domain: shop
descriptors:
  - {key: few, policy: 'few:{few}', rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: many, on_backend_error: local, rate_limit: {unit: hour, requests_per_unit: 1000000}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: shared, limits: [{name: s, algorithm: token_bucket, rate: 10000/s, burst: 10000, local_share: 50}]}
resources:
  - {path: /slow, concurrency: [{threshold: 1, response: {statusCode: 429}}]}
`

// load asks about everything, through Envoy and past it, until it is stopped.
func load(t *testing.T, h *testenv.Headgate, envoy string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	every := func(pause time.Duration, f func()) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil {
				f()
				time.Sleep(pause)
			}
		}()
	}
	client := http.Client{Timeout: 3 * time.Second}
	post := func(url, body string) {
		if resp, err := client.Post(url, "application/json", strings.NewReader(body)); err == nil {
			_ = resp.Body.Close()
		}
	}
	n := 0
	every(20*time.Millisecond, func() {
		for _, key := range []string{"few", "many", "shadow", "shared", "unknown"} {
			post("http://"+h.HTTP+"/json", `{"domain":"shop","descriptors":[{"entries":[{"key":"`+key+`","value":"a"}]}]}`)
		}
		n++
		post("http://"+h.HTTP+"/api/v1/slots", fmt.Sprintf(`{"eventId":"e%d","configName":"default","requestedTime":%q}`, n,
			time.Now().UTC().Format(time.RFC3339)))
	})
	for range 2 {
		every(50*time.Millisecond, func() {
			if resp, err := client.Get(envoy + "/slow"); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	// A lease that nobody ends expires.
	every(time.Second, func() {
		post("http://"+h.HTTP+"/json",
			`{"domain":"shop","descriptors":[{"entries":[{"key":"method","value":"GET"},{"key":"path","value":"/slow"}]}]}`)
	})
	return func() { cancel(); wg.Wait() }
}

// serveApplication answers after a while, so that requests are in flight; ?hang=1 is only
// answered when the client has gone.
func serveApplication(t *testing.T, port int) {
	t.Helper()
	server := &http.Server{Addr: fmt.Sprintf("127.0.0.1:%d", port),
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "hang=1" {
				<-r.Context().Done()
			}
			time.Sleep(100 * time.Millisecond)
		})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ListenAndServe() }()
	t.Cleanup(func() { _ = server.Close(); <-done })
}

// pauseFor stops a process for some time.
func pauseFor(t *testing.T, pid int, d time.Duration) {
	t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := syscall.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
	}
}
