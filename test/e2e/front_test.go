package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A setup describes an Envoy in front of an application. Fields in YAML must
// be in flow style or indented as the template needs it.
type setup struct {
	Services []string // headgates, as --grpc takes them
	Timeout  string   // of calls to headgate; empty means 5s, as Envoy's 20ms fail on a busy machine
	FailOpen bool     // let requests pass when headgate does not answer
	Routes   []route  // before the one for everything else
	Cluster  string   // more of headgate's cluster, a flow mapping without its braces
	Tracing  string   // where Envoy sends spans over gRPC; empty: nowhere
	Manager  string   // more of the connection manager, a line each
	Loggers  string   // more access logs, a list
	Filters  string   // behind headgate, a list

	app string // filled in
}

// A route has its own descriptors; none means that headgate is not asked.
type route struct{ Prefix, RateLimits string }

// byHeaders is asked about every request that no other route takes: the header
// x-key becomes the descriptor key=…, x-other the descriptor other=….
const byHeaders = `[{actions: [{request_headers: {header_name: x-key, descriptor_key: key}}]}, {actions: ` +
	`[{request_headers: {header_name: x-other, descriptor_key: other}}]}]`

var inBootstrap = template.FuncMap{"address": address, "indent": indent}

var bootstrap = template.Must(template.New("bootstrap").Funcs(inBootstrap).Parse(`
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: ingress
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          {{- with .Manager}}
{{indent . 10}}
          {{- end}}
          {{- if .Tracing}}
          tracing: {provider: {name: envoy.tracers.opentelemetry, typed_config: {
            "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig,
            service_name: envoy, grpc_service: {timeout: 5s, envoy_grpc: {cluster_name: collector}}}}}
          {{- end}}
          access_log:
          - name: envoy.access_loggers.stdout
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
              log_format:
                text_format_source:
                  inline_string: "access path=%REQ(:PATH)% code=%RESPONSE_CODE% \
                    rule=%DYNAMIC_METADATA(envoy.filters.http.ratelimit:rule)% \
                    degraded=%DYNAMIC_METADATA(envoy.filters.http.ratelimit:degraded)%\n"
          {{- with .Loggers}}
{{indent . 10}}
          {{- end}}
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: e2e
              timeout: {{or .Timeout "5s"}}
              failure_mode_deny: {{not .FailOpen}}
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: headgate}}}
          {{- with .Filters}}
{{indent . 10}}
          {{- end}}
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              {{- range .Routes}}
              - match: {prefix: {{.Prefix}}}
                route: {cluster: application}
                {{- if .RateLimits}}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits: {{.RateLimits}}
                {{- end}}
              {{- end}}
  clusters:
  - {{"{"}}{{with .Cluster}}{{.}}, {{end}}name: headgate, type: STATIC, connect_timeout: 1s,
      typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions,
        explicit_http_config: {http2_protocol_options: {}}}},
      load_assignment: {cluster_name: headgate, endpoints: [{lb_endpoints: [
        {{range .Services}}{endpoint: {address: {{address .}}}},{{end}}]}]}}
  {{- if .Tracing}}
  - {name: collector, type: STATIC, connect_timeout: 1s,
      typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions,
        explicit_http_config: {http2_protocol_options: {}}}},
      load_assignment:
        {cluster_name: collector, endpoints: [{lb_endpoints: [{endpoint: {address: {{address .Tracing}}}}]}]}}
  {{- end}}
  - name: application
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      {cluster_name: application, endpoints: [{lb_endpoints: [{endpoint: {address: {{address .AppAddr}}}}]}]}
`))

// AppAddr is for the template.
func (s setup) AppAddr() string { return s.app }

// address renders an address for Envoy.
func address(addr string) (string, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return fmt.Sprintf("{pipe: {path: %q}}", path), nil
	}
	host, port, err := net.SplitHostPort(addr)
	return fmt.Sprintf("{socket_address: {address: %s, port_value: %s}}", host, port), err
}

// startApplication runs what Envoy protects and returns its address.
func startApplication(t *testing.T) string {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		fmt.Fprint(w, "hello")
	}))
	t.Cleanup(app.Close)
	return app.Listener.Addr().String()
}

// A front is a running Envoy as its clients see it.
type front struct {
	*testenv.Envoy

	t      *testing.T
	addr   string
	client *http.Client
}

// startFront runs an Envoy of the given version.
func startFront(t *testing.T, version string, s setup) *front {
	t.Helper()
	s.app = startApplication(t)
	if s.Timeout == "" && !s.FailOpen {
		// Long: these machines are busy, and a late answer is not what most
		// tests are about.
		s.Timeout = "5s"
	}
	s.Routes = append(s.Routes, route{"/", byHeaders})
	var config bytes.Buffer
	if err := bootstrap.Execute(&config, s); err != nil {
		t.Fatal(err)
	}
	return newFront(t, version, config.String())
}

// newFront runs an Envoy whose listener is called ingress.
func newFront(t *testing.T, version, config string) *front {
	t.Helper()
	return frontAt(t, testenv.StartEnvoy(t, version, config, testenv.WithEnvoyArgs("--file-flush-interval-msec", "20")),
		"ingress")
}

// frontAt is a listener of a running Envoy.
func frontAt(t *testing.T, e *testenv.Envoy, listener string) *front {
	t.Helper()
	f := &front{Envoy: e, t: t, addr: e.ListenerAddr(listener)}
	// Envoys listen on all addresses in the examples.
	f.addr = strings.Replace(f.addr, "0.0.0.0", "127.0.0.1", 1)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	f.client = &http.Client{Timeout: 20 * time.Second, Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return f
}

// An answer is what a client got.
type answer struct {
	Code   int
	Header http.Header
	Body   string
	Took   time.Duration
}

func (a answer) String() string { return fmt.Sprintf("%d %v %q", a.Code, a.Header, a.Body) }

// Rule is the rule that refused, as the client sees it.
func (a answer) Rule() string { return a.Header.Get("x-headgate-rule") }

// Remaining is what the header x-ratelimit-remaining says, or -1.
func (a answer) Remaining() int {
	n, err := strconv.Atoi(a.Header.Get("x-ratelimit-remaining"))
	if err != nil {
		return -1
	}
	return n
}

// Get asks for a path with headers, given as name and value in turn.
func (f *front) Get(path string, headers ...string) answer {
	f.t.Helper()
	a, err := f.try(path, headers...)
	if err != nil {
		f.t.Fatalf("GET %s: %v", path, err)
	}
	return a
}

func (f *front) try(path string, headers ...string) (answer, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+f.addr+path, nil)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	start := time.Now()
	resp, err := f.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), time.Since(start)}, err
}

// Codes asks n times and returns the status codes in a row: "200 200 429".
func (f *front) Codes(n int, path string, headers ...string) string {
	f.t.Helper()
	var codes []string
	for range n {
		codes = append(codes, strconv.Itoa(f.Get(path, headers...).Code))
	}
	return strings.Join(codes, " ")
}

// codes is n times code, as Codes returns them.
func codes(n, code int) string {
	return strings.TrimSpace(strings.Repeat(strconv.Itoa(code)+" ", n))
}

// WantCodes checks a row of answers.
func (f *front) WantCodes(want, path string, headers ...string) {
	f.t.Helper()
	if got := f.Codes(len(strings.Fields(want)), path, headers...); got != want {
		f.t.Errorf("GET %s %v: answers %s, want %s", path, headers, got, want)
	}
}

// WantAccessLog waits for a line of the access log that has all parts.
func (f *front) WantAccessLog(parts ...string) {
	f.t.Helper()
	testenv.Eventually(f.t, 5*time.Second, fmt.Sprintf("find %q in the access log", parts), func() string {
		last := ""
		for line := range strings.Lines(f.Log()) {
			if !strings.HasPrefix(line, "access ") {
				continue
			}
			last = line
			if containsAll(line, parts) {
				return ""
			}
		}
		return last
	})
}

// clusterStat returns a statistic of one of Envoy's clusters. One that Envoy
// does not know is a counter that was never counted up.
func (f *front) clusterStat(cluster, name string) int {
	f.t.Helper()
	line := f.Admin("/stats?filter=^cluster." + cluster + "." + name + "$")
	if line == "" {
		return 0
	}
	n := 0
	if _, err := fmt.Sscanf(line, "cluster."+cluster+"."+name+": %d", &n); err != nil {
		f.t.Fatalf("Envoy's statistic %s: %v in %q", name, err, line)
	}
	return n
}

// wantHeader checks one header of an answer.
func wantHeader(t *testing.T, a answer, name, want string) {
	t.Helper()
	if got := a.Header.Values(name); len(got) != 1 || got[0] != want {
		t.Errorf("the header %s is %q, want %q, in %v", name, got, want, a)
	}
}

// wantSeconds checks a header that counts seconds.
func wantSeconds(t *testing.T, a answer, name string, least, most int) {
	t.Helper()
	n, err := strconv.Atoi(a.Header.Get(name))
	if err != nil || n < least || n > most {
		t.Errorf("the header %s is %q, want %d to %d, in %v", name, a.Header.Get(name), least, most, a)
	}
}
