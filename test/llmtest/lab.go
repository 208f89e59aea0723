package llmtest

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A Setup says what a Lab is made of.
type Setup struct {
	Root    string // folder of the repository
	Program string // headgate
	Envoy   string // version
	Rules   string // text
	// Headgates is how many there are; 0 is one. Serve are flags of all of them.
	Headgates int
	Serve     []string
	// Providers are what the rules choose from: each is a model of its own.
	Providers []string
	// Gateway: Envoy has what Envoy Gateway writes, in the place of what headgate prints.
	Gateway bool
	// Print are more flags of headgate envoy.
	Print []string
	// Change changes Envoy's configuration.
	Change func(string) string
}

// A Lab is a model behind a stock Envoy, which asks headgate.
type Lab struct {
	Model     *Model            // nil if there are Providers
	Providers map[string]*Model // by the names of Setup.Providers
	Headgates []*testenv.Headgate
	Envoy     *testenv.Envoy
	Base      string // URL for clients
	client    *http.Client
	config    string // Envoy's
}

// StartLab starts everything. It ends with the test.
func StartLab(tb testenv.TB, s Setup) *Lab {
	tb.Helper()
	l := &Lab{Providers: map[string]*Model{}}
	for _, name := range s.Providers {
		l.Providers[name] = startModel(tb)
	}
	if len(s.Providers) == 0 {
		l.Model = startModel(tb)
	}
	rules := filepath.Join(tb.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(s.Rules), 0o600); err != nil {
		tb.Fatalf("%v", err)
	}
	for range max(1, s.Headgates) {
		l.Headgates = append(l.Headgates,
			testenv.ServeHeadgate(tb, s.Program, append([]string{"--rules", rules}, s.Serve...)...))
	}
	l.config = l.printed(tb, s, rules)
	if s.Gateway {
		l.config = l.gateway(tb, s)
	}
	if s.Change != nil {
		l.config = s.Change(l.config)
	}
	l.Envoy, l.Base = l.StartEnvoy(tb, s.Envoy)
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	tb.Cleanup(transport.CloseIdleConnections)
	l.client = &http.Client{Transport: transport, Timeout: 5 * time.Minute}
	return l
}

func startModel(tb testenv.TB) *Model {
	tb.Helper()
	model, err := Start()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = model.Close() })
	return model
}

// StartEnvoy starts an Envoy like the lab's and returns the URL for clients.
func (l *Lab) StartEnvoy(tb testenv.TB, version string) (*testenv.Envoy, string) {
	tb.Helper()
	e := testenv.StartEnvoy(tb, version, l.config)
	_, port, err := net.SplitHostPort(e.ListenerAddr("ingress"))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return e, "http://127.0.0.1:" + port
}

// printed returns what headgate envoy prints.
func (l *Lab) printed(tb testenv.TB, s Setup, rules string) string {
	tb.Helper()
	if s.Gateway {
		return ""
	}
	args := []string{"envoy", rules, "--envoy-version", s.Envoy, "--listen", "0", "--admin", "127.0.0.1:0",
		// The machine is busy, and an answer that went missing is not an admission.
		"--timeout", "10s", "--deny-without-answer"}
	if l.Model != nil {
		args = append(args, "--upstream", l.Model.Addr)
	}
	for name, model := range l.Providers {
		args = append(args, "--upstream", name+"="+model.Addr)
	}
	for _, h := range l.Headgates {
		args = append(args, "--address", h.GRPC, "--services", h.Services)
	}
	code, out, errOut := testenv.RunProgram(tb, s.Program, nil, append(args, s.Print...)...)
	if code != 0 {
		tb.Fatalf("headgate envoy: %d %s", code, errOut)
	}
	return out
}

// gatewayYAML has the filters and the rate_limits that Envoy Gateway 1.9.1 writes for a BackendTrafficPolicy with a
// Distinct header, cost.request 0 and cost.response from metadata, as Envoy AI Gateway wants it, failClosed and a
// timeout. What fills the metadata is Lua here, and Envoy AI Gateway's ext_proc there.
//
//go:embed gateway.yaml
var gatewayYAML string

// GatewayDomain is the domain of Envoy Gateway's configuration, GatewayRule the descriptors above the user's.
const (
	GatewayDomain = "default/eg/http"
	GatewayRoute  = "httproute/default/llm/rule/0/match/0/*"
	GatewayUser   = "rule-0-match-0"
)

// gateway returns a bootstrap with what Envoy Gateway writes.
func (l *Lab) gateway(tb testenv.TB, s Setup) string {
	tb.Helper()
	lua, err := os.ReadFile(filepath.Join(s.Root, "internal", "app", "envoyconf", "llm.lua"))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	script := strings.NewReplacer(`set("llm", key,`, `set("io.envoy.ai_gateway", "llm_total_token",`,
		`set(handle, "estimate", n)`, `local unused = n`).Replace(string(lua))
	var endpoints []string
	for _, h := range l.Headgates {
		endpoints = append(endpoints, "{endpoint: {address: "+testenv.EnvoyAddress(h.GRPC)+"}}")
	}
	return strings.NewReplacer("LUA", strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n"+strings.Repeat(" ", 18)),
		"DOMAIN", GatewayDomain, "ROUTE", GatewayRoute, "USER", GatewayUser, "HEADER", UserHeader,
		"HEADGATES", strings.Join(endpoints, ", "), "MODEL", testenv.EnvoyAddress(l.Model.Addr)).Replace(gatewayYAML)
}

// An Outcome is what became of calls.
type Outcome struct {
	Passed  int // those that reached the model, whatever became of them
	Refused int // status 429
	Failed  int // neither
	Why     string
}

// Burst sends calls at once and waits for their ends.
func (l *Lab) Burst(ctx context.Context, n int, c Call) Outcome { return l.Retry(ctx, n, c, 0) }

// retryEvery is how long a client waits that was refused.
const retryEvery = 500 * time.Millisecond

// Retry is Burst with clients that try again when they are refused, for some time. An outcome is a client's last one.
func (l *Lab) Retry(ctx context.Context, n int, c Call, d time.Duration) Outcome {
	var o Outcome
	var mu sync.Mutex
	var all sync.WaitGroup
	until := time.Now().Add(d)
	for range n {
		all.Go(func() {
			status, err := c.Do(ctx, l.client, l.Base)
			for status == http.StatusTooManyRequests && time.Now().Before(until) {
				time.Sleep(retryEvery)
				status, err = c.Do(ctx, l.client, l.Base)
			}
			mu.Lock()
			defer mu.Unlock()
			o.add(c, status, err)
		})
	}
	all.Wait()
	return o
}

// Do sends one call.
func (l *Lab) Do(ctx context.Context, c Call) Outcome {
	var o Outcome
	status, err := c.Do(ctx, l.client, l.Base)
	o.add(c, status, err)
	return o
}

func (o *Outcome) add(c Call, status int, err error) {
	switch {
	case status == http.StatusTooManyRequests:
		o.Refused++
	case status == http.StatusOK && (err == nil) != (c.Plan.End == Cut),
		status == http.StatusInternalServerError && c.Plan.End == Fails:
		o.Passed++
	default:
		o.Failed++
		o.Why = fmt.Sprint(status, " ", err)
	}
}
