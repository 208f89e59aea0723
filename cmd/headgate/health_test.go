package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// askHealth runs `headgate health` and holds it to its deadline.
func askHealth(t *testing.T, args ...string) (int, string) {
	t.Helper()
	start := time.Now()
	code, out := headgate(t, append([]string{"health"}, args...)...)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("health %v took %v", args, took)
	}
	return code, out
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hg") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestHealthOverEverySocket(t *testing.T) {
	dir, certs := shortDir(t), testenv.TestCerts(t)
	mutual := []string{"--tls-ca", certs.CAFile, "--tls-cert", certs.Client.CertFile, "--tls-key", certs.Client.KeyFile}
	encrypted := []string{"--grpc-tls-cert", certs.Server.CertFile, "--grpc-tls-key", certs.Server.KeyFile}
	for _, c := range []struct {
		name, grpc   string
		serve, probe []string
	}{
		{"TCP", "127.0.0.1:0", nil, nil},
		{"TLS", "127.0.0.1:0", encrypted, []string{"--tls-ca", certs.CAFile}},
		{"client certificates", "127.0.0.1:0", append(encrypted[:4:4], "--grpc-client-ca", certs.CAFile), mutual},
		{"Unix socket", "unix:" + filepath.Join(dir, "a"), nil, nil},
		{"Unix socket with TLS", "unix:" + filepath.Join(dir, "b"), encrypted, []string{"--tls-ca", certs.CAFile}},
		{"abstract socket", "unix:@" + filepath.Base(dir), nil, nil},
		{"grpc-go", "127.0.0.1:0", []string{"--transport", "grpc"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startServe(t, append(c.serve, "--grpc", c.grpc)...)
			addr := c.grpc
			if strings.HasPrefix(addr, "127.") {
				addr = r.GRPC
			}
			probe := append(c.probe, "--addr", addr, "--timeout", "10s")
			for _, service := range []string{"", "ratelimit"} {
				if code, out := askHealth(t, append(probe, "--service", service)...); code != 0 || out != "SERVING\n" {
					t.Errorf("service %q: %d %s", service, code, out)
				}
			}
			if code, out := askHealth(t, append(probe, "--service", "none")...); code != 1 ||
				!strings.Contains(out, `unknown --service "none"`) {
				t.Errorf("an unknown service: %d %s", code, out)
			}
			if code, out := askHealth(t, "--addr", "http://"+r.HTTP, "--timeout", "10s"); code != 0 || out != "SERVING\n" {
				t.Errorf("over HTTP: %d %s", code, out)
			}
			if len(c.probe) > 0 {
				if code, out := askHealth(t, "--addr", addr, "--timeout", "500ms"); code != 1 {
					t.Errorf("in plain: %d %s", code, out)
				}
			} else if code, out := askHealth(t, "--addr", addr, "--tls", "--timeout", "500ms"); code != 1 {
				t.Errorf("over TLS: %d %s", code, out)
			}
		})
	}
}

func TestHealthOfWhatDoesNotServe(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for _, c := range []struct{ args, want string }{
		{"--addr 127.0.0.1:1", "connection refused"},
		{"--addr unix:/none", "/none"},
		{"--addr http://127.0.0.1:1", "connection refused"},
		{"--addr http://" + silent.Addr().String() + " --timeout 300ms", "no answer within --timeout 300ms"},
		{"--addr http://" + other.Listener.Addr().String(), "unexpected answer 404"},
		{"--addr http://127.0.0.1:1 --tls", "has no --service and no --tls"},
		{"--addr http://127.0.0.1:1 --service ratelimit", "has no --service and no --tls"},
		{"--addr http://[", "--addr"},
		{"--addr unix:@headgate-none", "headgate-none"},
		{"--addr " + silent.Addr().String() + " --timeout 300ms", "no answer within --timeout 300ms"},
		{"--addr " + silent.Addr().String() + " --timeout 300ms --tls", "no answer within --timeout 300ms"},
		{"--tls-ca none", "--tls-ca: open none"},
		{"--tls-cert none", "tls-key"},
		{"--adr x", "did you mean --addr?"},
		{"--timeout soon", "not a valid duration"},
		{"x", "takes flags only"},
	} {
		if code, out := askHealth(t, strings.Fields(c.args)...); code != 1 || !strings.Contains(out, c.want) ||
			strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %d %s, want one line with %q", c.args, code, out, c.want)
		}
	}
}

func TestHealthWhileDraining(t *testing.T) {
	r := startServe(t, "--drain-delay", "5s")
	r.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		code, out := askHealth(t, "--addr", r.GRPC, "--timeout", "10s")
		if code == 1 && out == "NOT_SERVING\n" {
			if code, out := askHealth(t, "--addr", "http://"+r.HTTP, "--timeout", "10s"); code != 1 || out != "NOT_SERVING\n" {
				t.Errorf("over HTTP: %d %s", code, out)
			}
			break
		}
		if code != 0 || time.Now().After(deadline) {
			t.Fatalf("%d %s", code, out)
		}
	}
}

// A probe in the container of the service needs no flags: the environment says
// where the service is.
func TestClientsAskWhereTheEnvironmentSays(t *testing.T) {
	r := startServe(t)
	t.Setenv("HEADGATE_GRPC", r.GRPC)
	if code, out := askHealth(t, "--timeout", "10s"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
}
