//go:build egtest

package egtest

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// Ports of the lab. Envoy Gateway itself takes 18000 to 18002, 19000, 19001 and 8081,
// whatever one says.
const (
	gatewayPort = 10080
	otherPort   = 10081 // the second listener
	grpcPort    = 18081
	httpPort    = 18080
	debugPort   = 16070
	metricsPort = 19102
	canaryPorts = 100 // how far those of a second rate limit service are behind those of the first
)

// A lab is Envoy Gateway, an Envoy, a backend and a rate limit service.
type lab struct {
	t       *testing.T
	home    string
	gateway string // the program Envoy Gateway
	model   llmtest.Model
	redis   *testenv.RedisServer
	rls     *testenv.Program
	eg      *testenv.Program
	canary  bool // there is a second rate limit service
}

// start starts everything, with a rate limit service that is called under the name and
// the environment of Envoy Gateway's Deployment, and more of it.
func start(t *testing.T, service string, cases []scenario, more ...string) *lab {
	t.Helper()
	l := &lab{t: t}
	l.start(service, cases, more...)
	return l
}

func (l *lab) start(service string, cases []scenario, more ...string) {
	l.t.Helper()
	t := l.t
	gateway := testenv.Built(t, "ENVOY_GATEWAY", "envoy-gateway-1.9.1", "envoy-gateway")
	l.home = t.TempDir()
	if code, out, errOut := testenv.RunProgram(t, gateway, nil, "certgen", "--local", "--config-home", l.home); code != 0 {
		t.Fatalf("certgen: %d %s %s", code, out, errOut)
	}
	l.linkEnvoy()
	l.backend()
	l.write(filepath.Join(l.home, "resources", "all.yaml"), l.resources(cases))
	l.write(filepath.Join(l.home, "standalone.yaml"), l.standalone())
	l.redis = testenv.StartRedis(t)
	l.rls = testenv.StartProgram(t, service, append(l.environment(l.redis), more...))
	if l.canary {
		testenv.StartProgram(t, program, slices.Concat(l.environment(l.redis), ports(canaryPorts), more))
	}
	l.gateway = gateway
	l.startGateway()
	l.await()
}

// startGateway starts Envoy Gateway, which starts Envoy.
func (l *lab) startGateway() {
	l.t.Helper()
	l.eg = testenv.StartProgram(l.t, l.gateway, []string{"ENVOY_GATEWAY_NAMESPACE=envoy-gateway-system", "HOME=" + l.home},
		"server", "--config-path", filepath.Join(l.home, "standalone.yaml"))
}

// linkEnvoy puts Envoy where Envoy Gateway would download it to.
func (l *lab) linkEnvoy() {
	l.t.Helper()
	dir := filepath.Join(l.home, "data", "envoy-versions", "1.40.0", "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Symlink(testenv.Require(l.t, "envoy-1.40.0"), filepath.Join(dir, "envoy")); err != nil {
		l.t.Fatal(err)
	}
}

// backend answers all requests; calls to a language model as one does.
func (l *lab) backend() {
	l.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:3000")
	if err != nil {
		l.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", &l.model)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // ends with the test
	l.t.Cleanup(func() { _ = server.Close() })
}

func (l *lab) write(path, content string) {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) standalone() string {
	return strings.ReplaceAll(`apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: File, file: {paths: [HOME/resources]}}
    infrastructure:
      type: Host
      host: {configHome: HOME, dataHome: HOME/data, stateHome: HOME/state, runtimeDir: HOME/run}
rateLimit: {timeout: 2s, failClosed: true, backend: {type: Redis, redis: {url: "localhost:6379"}}}
extensionApis: {enableBackend: true, enableEnvoyPatchPolicy: true, enableLua: true}
`, "HOME", l.home)
}

// environment is that of Envoy Gateway's Deployment. What differs: ports that Envoy
// Gateway takes on this host, paths of what are volumes there, the address of the control
// plane and, since that is not the name in its certificate, the name to verify.
func (l *lab) environment(redis *testenv.RedisServer) []string {
	certs := filepath.Join(l.home, "certs", "envoy-rate-limit")
	return []string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=localhost:18001", "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + certs + "/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + certs + "/tls.key",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + certs + "/ca.crt",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + certs + "/tls.crt", "GRPC_SERVER_TLS_KEY=" + certs + "/tls.key",
		"GRPC_SERVER_TLS_CA_CERT=" + certs + "/ca.crt",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Options().Addr,
		"USE_PROMETHEUS=true", fmt.Sprintf("PROMETHEUS_ADDR=:%d", metricsPort),
		"PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		fmt.Sprintf("GRPC_PORT=%d", grpcPort), fmt.Sprintf("PORT=%d", httpPort), fmt.Sprintf("DEBUG_PORT=%d", debugPort),
	}
}

// ports are variables of another rate limit service beside the first.
func ports(behind int) []string {
	return []string{fmt.Sprintf("GRPC_PORT=%d", grpcPort+behind), fmt.Sprintf("PORT=%d", httpPort+behind),
		fmt.Sprintf("DEBUG_PORT=%d", debugPort+behind), fmt.Sprintf("PROMETHEUS_ADDR=:%d", metricsPort+behind)}
}

// await waits until the rate limit service has the rules of all cases and Envoy limits
// the route that is there for this.
func (l *lab) await() {
	l.t.Helper()
	testenv.Eventually(l.t, 3*time.Minute, "configure the rate limit service and Envoy", func() string {
		if l.rls.Exited() || l.eg.Exited() {
			l.t.Fatalf("the rate limit service has ended: %v, Envoy Gateway: %v", l.rls.Exited(), l.eg.Exited())
		}
		if config := l.rlconfig(); !strings.Contains(config, "ready") {
			return "/rlconfig: " + config
		}
		a := l.ask(request{host: "ready"})
		if a.status != http.StatusOK || a.limit != "1000000, 1000000;w=3600" {
			return fmt.Sprintf("the route ready: %+v", a)
		}
		return ""
	})
}

// rlconfig returns the rules of the rate limit service, or the text of the error.
func (l *lab) rlconfig() string { return l.page(debugPort, "/rlconfig") }

// page returns a page of the rate limit service, or the text of the error.
func (l *lab) page(port int, path string) string {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	config, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(config)
}

// secret returns a Secret for Envoy Gateway, from the files that certgen made.
func (l *lab) secret(name string) string {
	l.t.Helper()
	var data strings.Builder
	for _, file := range []string{"tls.crt", "tls.key", "ca.crt"} {
		content, err := os.ReadFile(filepath.Join(l.home, "certs", name, file))
		if err != nil {
			l.t.Fatal(err)
		}
		fmt.Fprintf(&data, "  %s: %s\n", file, base64.StdEncoding.EncodeToString(content))
	}
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name +
		", namespace: envoy-gateway-system}\ntype: kubernetes.io/tls\ndata:\n" + data.String()
}

// A request is what a client sends.
type request struct {
	host   string // of the route
	port   int    // of the listener; 0: the first one
	method string
	path   string
	header map[string]string
}

// An answer is what the client gets.
type answer struct {
	status                  int
	limit, remaining, reset string // X-RateLimit-Limit, -Remaining and -Reset
	retryAfter              string
}

func (l *lab) ask(r request) answer {
	l.t.Helper()
	port := r.port
	if port == 0 {
		port = gatewayPort
	}
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(l.t.Context(), method,
		fmt.Sprintf("http://127.0.0.1:%d%s", port, "/"+strings.TrimPrefix(r.path, "/")), http.NoBody)
	if err != nil {
		l.t.Fatal(err)
	}
	req.Host = r.host + ".example.com"
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	client := http.Client{Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return answer{limit: err.Error()}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	h := resp.Header
	return answer{resp.StatusCode, h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset"),
		h.Get("Retry-After")}
}
