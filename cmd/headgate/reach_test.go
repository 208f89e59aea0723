package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/internal/testenv"
)

// Which client may call is decided by the names in its certificate, on both
// ports of the gRPC services and over both transports.
func TestClientsAreRefusedByTheirNames(t *testing.T) {
	certs := testenv.TestCerts(t)
	named := func(names ...string) testenv.Pair {
		return certs.Issue(t, "envoy.example.com", func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses = nil, nil
			for _, n := range names {
				if u, err := url.Parse(n); err == nil && u.Scheme != "" {
					c.URIs = append(c.URIs, u)
				} else {
					c.DNSNames = append(c.DNSNames, n)
				}
			}
		})
	}
	for _, transport := range []string{"unary", "grpc"} {
		r := startServe(t, "--transport", transport, "--grpc-tls-cert", certs.Server.CertFile, "--grpc-tls-key", certs.Server.KeyFile, "--grpc-client-ca", certs.CAFile,
			"--grpc-client-san", "*.envoy.example.com", "--grpc-client-san", "spiffe://cluster.local/ns/*/sa/envoy")
		for _, c := range []struct {
			name  string
			pair  testenv.Pair
			admit bool
		}{
			{"a DNS name", named("other", "a.envoy.example.com"), true},
			{"a SPIFFE ID", named("spiffe://cluster.local/ns/shop/sa/envoy"), true},
			{"another DNS name", named("envoy.example.com"), false},
			{"another SPIFFE ID", named("spiffe://cluster.local/ns/shop/sa/other"), false},
			{"a common name only", named(), false},
		} {
			for _, addr := range []string{r.grpc, r.services} {
				code, out := askHealth(t, "--addr", addr, "--timeout", "10s", "--tls-ca", certs.CAFile, "--tls-cert", c.pair.CertFile, "--tls-key", c.pair.KeyFile)
				if (code == 0) != c.admit {
					t.Errorf("%s, %s at %s: %d %s", transport, c.name, addr, code, out)
				}
			}
		}
		if log := r.log.String(); !strings.Contains(log, "client refused by the names in its certificate") || !strings.Contains(log, "--grpc-client-san") {
			t.Errorf("the log does not say who was refused:\n%s", log)
		}
	}
}

func TestMetricsHaveAListenerOfTheirOwn(t *testing.T) {
	r := startServe(t, "--metrics", "127.0.0.1:0")
	for _, c := range []struct {
		addr, path string
		code       int
	}{
		{r.metrics, "/metrics", 200}, {r.metrics, "/rlconfig", 404}, {r.metrics, "/debug/pprof/", 404}, {r.metrics, "/debug/pprof/cmdline", 404},
		{r.debug, "/metrics", 404}, {r.debug, "/rlconfig", 200}, {r.debug, "/debug/pprof/", 200},
	} {
		if code, body := r.get(c.addr, c.path); code != c.code {
			t.Errorf("%s%s: %d %.100s, want %d", c.addr, c.path, code, body, c.code)
		}
	}
	r = startServe(t)
	if code, _ := r.get(r.debug, "/metrics"); code != 200 {
		t.Errorf("without --metrics, /metrics is %d on the debug address", code)
	}
}

// Clients do not learn which rule refused them unless the operator wants it.
func TestRuleHeaderIsOffUnlessAskedFor(t *testing.T) {
	for _, flags := range [][]string{nil, {"--rule-header", "x-headgate-rule"}} {
		r := startServe(t, flags...)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		client, found := rls.NewRateLimitServiceClient(r.dial(r.grpc)), ""
		for over := false; !over; {
			resp, err := client.ShouldRateLimit(ctx, exampleRequest())
			if err != nil {
				t.Fatal(err)
			}
			over = resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT
			for _, h := range resp.ResponseHeadersToAdd {
				if strings.Contains(h.Key+h.Value, "rule") || strings.Contains(h.Value, "example/") {
					found = h.Key
				}
			}
			if over && resp.DynamicMetadata.Fields["rule"].GetStringValue() == "" {
				t.Error("Envoy does not learn the rule")
			}
		}
		if want := strings.Join(flags, ""); want != "" && found != "x-headgate-rule" || want == "" && found != "" {
			t.Errorf("%v: the refusal has the header %q", flags, found)
		}
	}
}

// With --slots-auth nobody reads or takes slots without what admin paths demand.
func TestSlotsAuth(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	r := startServe(t, "--slots", "sqlite::memory:", "--slots-seed", "10/PT4S", "--slots-auth")
	for _, path := range []string{"/slots", "/slots/app.js", "/api/v1/slots", "/api/v1/slots/e", "/api/v1/configs", "/api/v1/windows", "/api/v1/openapi.json", "/api/v1/none"} {
		if code, body := r.get(r.http, path); code != 401 || !strings.Contains(body, "this path needs") {
			t.Errorf("%s without the token: %d %.100s", path, code, body)
		}
	}
	const event = `{"eventId":"e","requestedTime":"2025-06-01T12:00:00Z"}`
	for token, want := range map[string]int{"": 401, "x" + adminToken: 401, adminToken: 200} {
		if code, answer, _ := r.post(r.http, "/api/v1/slots", token, event); code != want {
			t.Errorf("token %q: %d %v, want %d", token, code, answer, want)
		}
	}
	if code, _ := r.get(r.http, "/healthcheck"); code != 200 {
		t.Errorf("the guard is before /healthcheck too: %d", code)
	}
	if code, out := headgate(t, "slot", "e", "--addr", "http://"+r.http); code != 0 || !strings.Contains(out, "replayed") {
		t.Errorf("headgate slot with the token in the environment: %d %s", code, out)
	}
	t.Setenv("HEADGATE_ADMIN_TOKEN", "")
	if code, out := headgate(t, "slot", "e", "--addr", "http://"+r.http); code != exitError || !strings.Contains(out, "HEADGATE_ADMIN_TOKEN") {
		t.Errorf("headgate slot without: %d %s", code, out)
	}
	if code, out := headgate(t, "serve", "--example", "--slots", "sqlite::memory:", "--slots-auth"); code != exitError || !strings.Contains(out, "--slots-auth: needs --admin-token or --admin-client-ca") {
		t.Errorf("a guard that nobody could pass: %d %s", code, out)
	}
}

// Who has a client certificate instead of a token asks the --admin address.
func TestSlotsAuthByCertificate(t *testing.T) {
	testenv.UseSQLite(t)
	certs := testenv.TestCerts(t)
	r := startServe(t, "--slots", "sqlite::memory:", "--slots-auth", "--admin", "127.0.0.1:0",
		"--admin-tls-cert", certs.Server.CertFile, "--admin-tls-key", certs.Server.KeyFile, "--admin-client-ca", certs.CAFile)
	if code, body := r.get(r.http, "/api/v1/configs"); code != 401 || !strings.Contains(body, "--admin address") {
		t.Errorf("without a certificate: %d %s", code, body)
	}
	authority, err := os.ReadFile(certs.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	conf.RootCAs.AppendCertsFromPEM(authority)
	own, err := tls.LoadX509KeyPair(certs.Client.CertFile, certs.Client.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	conf.Certificates = []tls.Certificate{own}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: conf}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/api/v1/configs", "/slots", "/admin/rate-limit/configs"} {
		resp, err := client.Get("https://" + r.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s with a certificate: %s", path, resp.Status)
		}
	}
}
