package compat

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate-rls/headgate/test/testenv"
)

// An image is the root of a container: what the Dockerfile puts into it, and what Kubernetes
// mounts.
type image struct {
	t    *testing.T
	root string
}

// newImage makes the root that the last stage of the Dockerfile describes, without an engine.
func newImage(t *testing.T) *image {
	t.Helper()
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		t.Skip("not run: this system does not permit mount namespaces: ", err)
	}
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	// What the Dockerfile says, for the tree that its build stage makes.
	for _, want := range []string{`-o /image/headgate `, `ln -s /headgate /image/bin/ratelimit`,
		`COPY --from=build /image/ /`, `FROM scratch`} {
		if !regexp.MustCompile(`(?m)` + regexp.QuoteMeta(want)).Match(text) {
			t.Fatalf("the Dockerfile has no %q, by which this test makes the root", want)
		}
	}
	i := &image{t: t, root: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(i.root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	i.copy(program, "headgate", 0o755)
	if err := os.Symlink("/headgate", filepath.Join(i.root, "bin/ratelimit")); err != nil {
		t.Fatal(err)
	}
	// Each container has /proc, and Kubernetes mounts the files in every pod.
	if err := os.Mkdir(filepath.Join(i.root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(i.root, "etc/hosts"), "127.0.0.1 localhost envoy-gateway redis\n")
	write(t, filepath.Join(i.root, "etc/resolv.conf"), "")
	for dir := i.root; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // another user runs in there
			t.Fatal(err)
		}
	}
	return i
}

// copy copies a file into the image.
func (i *image) copy(from, to string, mode os.FileMode) {
	i.t.Helper()
	in, err := os.Open(from)
	if err != nil {
		i.t.Fatal(err)
	}
	defer in.Close()
	path := filepath.Join(i.root, to)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		i.t.Fatal(err)
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
	if err == nil {
		_, err = io.Copy(out, in)
		e := out.Close()
		if err == nil {
			err = e
		}
	}
	if err != nil {
		i.t.Fatal(err)
	}
}

// run starts a command of the image with an environment and nothing else, as a user, with a
// read-only root that is all it can see.
func (i *image) run(user string, env map[string]string, command ...string) *service {
	i.t.Helper()
	script := fmt.Sprintf(`mount --bind %[1]s %[1]s && mount -o remount,bind,ro %[1]s && mount -t proc proc %[1]s/proc `+
		`&& exec chroot --userspec=%[2]s:%[2]s --groups= %[1]s "$@"`, i.root, user)
	args := append([]string{"-i"}, list(env)...)
	args = append(args, "unshare", "-m", "sh", "-c", "PATH=/usr/sbin:/usr/bin:/sbin:/bin; "+script, "sh")
	s := at(i.t, env)
	s.Program = testenv.StartProgram(i.t, "/usr/bin/env", nil, append(args, command...)...)
	return s
}

// EnvoyGateway is the environment of Envoy Gateway 1.9's Deployment, in the order of its code.
func envoyGateway() map[string]string {
	return map[string]string{
		"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_IGNOREDOTFILES": "true",
		"RUNTIME_WATCH_ROOT": "false",
		"LOG_LEVEL":          "info", "USE_STATSD": "false", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:18001",
		"CONFIG_GRPC_XDS_NODE_ID":        "envoy-ratelimit",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS": "true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/certs/tls.crt",
		"CONFIG_GRPC_XDS_CLIENT_TLS_KEY":    "/certs/tls.key",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/certs/ca.crt",
		"GRPC_SERVER_USE_TLS":               "true", "GRPC_SERVER_TLS_CERT": "/certs/tls.crt",
		"GRPC_SERVER_TLS_KEY": "/certs/tls.key", "GRPC_SERVER_TLS_CA_CERT": "/certs/ca.crt",
		"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "localhost:6379",
		"USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": ":19001", "PROMETHEUS_MAPPER_YAML": "/etc/statsd-exporter/conf.yaml",
		"TRACING_ENABLED": "true", "TRACING_SERVICE_NAME": "envoy-ratelimit",
		"TRACING_SERVICE_NAMESPACE":   "envoy-gateway-system",
		"TRACING_SERVICE_INSTANCE_ID": "envoy-ratelimit-0", "TRACING_SAMPLING_RATE": "1.0",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318",
	}
}

// A pod of Envoy Gateway serves the rules that its control plane sends, as uid 65534 with a
// read-only root and no volume but the certificates. Only ports and Redis are the test's own.
func TestEnvoyGatewaysDeployment(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	redis := testenv.StartRedis(t)
	certs := testenv.TestCerts(t)
	pod := certs.Issue(t, "*", func(c *x509.Certificate) { c.DNSNames = []string{"*.envoy-gateway-system"} })
	i.copy(pod.CertFile, "certs/tls.crt", 0o644)
	i.copy(pod.KeyFile, "certs/tls.key", 0o644)
	i.copy(certs.CAFile, "certs/ca.crt", 0o644)
	control := startControlPlane(t, certs)

	metrics := testenv.FreePort(t)
	env := ports(t, envoyGateway())
	maps.Copy(env, map[string]string{
		"CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:" + control, "REDIS_URL": redis.Addr,
		"PROMETHEUS_ADDR": fmt.Sprintf(":%d", metrics),
	})
	s := i.run("65534", env, "/bin/ratelimit")
	s.ready()
	friend := certs.ClientTLS(t)
	friend.InsecureSkipVerify = true // Envoy verifies the authority only: there is no name in the certificate
	s.creds = credentials.NewTLS(friend)

	const route = "httproute/default/usage/rule/0/match/0/*"
	s.eventually("the rules have come", func() bool {
		resp, err := s.call("default/eg/http", 1, descriptor(route+"="+route, "rule-0-match-0=peek"))
		return err == nil && resp.Statuses[0].CurrentLimit.GetRequestsPerUnit() == 3
	})
	if got := s.codes(4, "default/eg/http", route+"="+route, "rule-0-match-0=alice"); got != "200 200 200 429" {
		t.Errorf("a limit of 3: %s", got)
	}
	code, body := s.get(fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics))
	if want := `ratelimit_service_rate_limit_over_limit{domain="default/eg/http",key1="` + route + "_" + route +
		`",key2="rule-0-match-0"} 1`; code != 200 || !strings.Contains(body, want) {
		t.Errorf("metrics: %d, want %s in\n%s", code, want, only(body, "ratelimit_"))
	}
	for _, name := range []string{"ratelimit_redis_pool_cx_active ", "go_memstats_alloc_bytes ",
		"process_resident_memory_bytes "} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("metrics: there is no %s", name)
		}
	}
	if strings.Contains(body, "ratelimit_localcache_") {
		t.Error("metrics: there are those of a local cache, which nobody has asked for")
	}
	if code, body := s.get("http://" + s.debug + "/rlconfig"); code != 200 ||
		!strings.Contains(body, "unit=HOUR requests_per_unit=3") {
		t.Errorf("/rlconfig: %d %s", code, body)
	}
	s.wantUser("65534")
}

// wantUser holds the process to a user, and to a root that it cannot write to.
func (s *service) wantUser(uid string) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil || !strings.Contains(string(text), "\nUid:\t"+uid+"\t"+uid+"\t"+uid+"\t"+uid) {
		s.t.Errorf("the process is not that of user %s: %v", uid, err)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.PID()))
	if err != nil || !regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ / ro[, ]`).Match(mounts) {
		s.t.Errorf("its root is not read-only: %v\n%s", err, mounts)
	}
	exe, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID()))
	if err != nil || !strings.HasPrefix(string(exe), "/bin/ratelimit\x00") {
		s.t.Errorf("it runs %q, %v", exe, err)
	}
}

// only returns the lines of a page that begin with a prefix.
func only(page, prefix string) string {
	var lines []string
	for line := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// A controlPlane sends one state of rules to the node of Envoy Gateway's Deployment, as Envoy
// Gateway does, and nothing to others.
type controlPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
}

const configType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

func (controlPlane) StreamAggregatedResources(
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	if req.GetNode().GetId() != "envoy-ratelimit" || req.GetTypeUrl() != configType {
		<-stream.Context().Done()
		return nil
	}
	const route = "httproute/default/usage/rule/0/match/0/*"
	conf, err := anypb.New(&rlsconf.RateLimitConfig{Name: "default/eg/http", Domain: "default/eg/http",
		Descriptors: []*rlsconf.RateLimitDescriptor{{
			Key: route, Value: route, Descriptors: []*rlsconf.RateLimitDescriptor{{
				Key: "rule-0-match-0", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_HOUR, RequestsPerUnit: 3},
			}},
		}}})
	if err != nil {
		return err
	}
	if err := stream.Send(&discovery.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: configType,
		Resources: []*anypb.Any{conf}}); err != nil {
		return err
	}
	ack, err := stream.Recv()
	if err == nil && ack.ErrorDetail != nil {
		return status.Error(codes.Internal, "rejected: "+ack.ErrorDetail.Message)
	}
	<-stream.Context().Done()
	return nil
}

// startControlPlane returns its port. It demands a client certificate, as Envoy Gateway does.
func startControlPlane(t *testing.T, certs *testenv.Certs) string {
	t.Helper()
	own := certs.Issue(t, "envoy-gateway",
		func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"envoy-gateway"}, nil })
	pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: certs.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
	})))
	discovery.RegisterAggregatedDiscoveryServiceServer(g, controlPlane{})
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// Istio's sample Deployment, with the rules of its task, answers as the task says.
func TestIstiosSample(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	redis := testenv.StartRedis(t)
	// As Kubernetes mounts a ConfigMap.
	const dir = "data/ratelimit/config"
	write(t, filepath.Join(i.root, dir, "..2026_11_22/config.yaml"), `domain: ratelimit
descriptors:
  - key: PATH
    value: "/productpage"
    rate_limit:
      unit: minute
      requests_per_unit: 1
  - key: PATH
    value: "api"
    rate_limit:
      unit: minute
      requests_per_unit: 2
  - key: PATH
    rate_limit:
      unit: minute
      requests_per_unit: 100
`)
	for link, to := range map[string]string{"..data": "..2026_11_22", "config.yaml": "..data/config.yaml"} {
		if err := os.Symlink(to, filepath.Join(i.root, dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"0", "65534"} {
		t.Run("uid "+user, func(t *testing.T) {
			pod := &image{t, i.root}
			env := ports(t, map[string]string{
				"LOG_LEVEL": "debug", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": redis.Addr, "USE_STATSD": "false",
				"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit",
				"RUNTIME_WATCH_ROOT": "false", "RUNTIME_IGNOREDOTFILES": "true", "HOST": "::", "GRPC_HOST": "::",
			})
			env["CACHE_KEY_PREFIX"] = "user" + user // each of the two has counters of its own
			s := pod.run(user, env, "/bin/ratelimit")
			s.ready()
			if got := s.codes(2, "ratelimit", "PATH=/productpage"); got != "200 429" {
				t.Errorf("/productpage: %s, and the task says 200 429", got)
			}
			if got := s.codes(3, "ratelimit", "PATH=api"); got != "200 200 429" {
				t.Errorf("api: %s, and the task says 200 200 429", got)
			}
			if got := s.codes(3, "ratelimit", "PATH=/other"); got != "200 200 200" {
				t.Errorf("/other: %s", got)
			}
			s.wantUser(user)
		})
	}
}
