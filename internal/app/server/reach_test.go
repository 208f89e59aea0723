package server

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/test/testenv"
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
		r := startServe(t, "--transport", transport, "--grpc-tls-cert", certs.Server.CertFile, "--grpc-tls-key",
			certs.Server.KeyFile, "--grpc-client-ca", certs.CAFile,
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
			for _, addr := range []string{r.GRPC, r.Services} {
				if err := checkHealth(t, addr, clientTLS(t, certs, &c.pair)); (err == nil) != c.admit {
					t.Errorf("%s, %s at %s: %v", transport, c.name, addr, err)
				}
			}
		}
		if log := r.Log.String(); !strings.Contains(log, "client rejected: no admitted name in its certificate") ||
			!strings.Contains(log, "--grpc-client-san") {
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
		{r.Metrics, "/metrics", 200}, {r.Metrics, "/rlconfig", 404}, {r.Metrics, "/debug/pprof/", 404},
		{r.Metrics, "/debug/pprof/cmdline", 404},
		{r.Debug, "/metrics", 404}, {r.Debug, "/rlconfig", 200}, {r.Debug, "/debug/pprof/", 200},
	} {
		if code, body := r.Get(c.addr, c.path); code != c.code {
			t.Errorf("%s%s: %d %.100s, want %d", c.addr, c.path, code, body, c.code)
		}
	}
	r = startServe(t)
	if code, _ := r.Get(r.Debug, "/metrics"); code != 200 {
		t.Errorf("without --metrics, /metrics is %d on the debug address", code)
	}
}

// Clients do not learn which rule refused them unless the operator wants it.
func TestRuleHeaderIsOffUnlessAskedFor(t *testing.T) {
	for _, flags := range [][]string{nil, {"--rule-header", "x-headgate-rule"}} {
		r := startServe(t, flags...)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		client, found := rls.NewRateLimitServiceClient(r.Dial(r.GRPC)), ""
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
	for _, path := range []string{"/slots", "/slots/app.js", "/api/v1/slots", "/api/v1/slots/e", "/api/v1/configs",
		"/api/v1/windows", "/api/v1/openapi.json", "/api/v1/none"} {
		if code, body := r.Get(r.HTTP, path); code != 401 || !strings.Contains(body, "this path needs") {
			t.Errorf("%s without the token: %d %.100s", path, code, body)
		}
	}
	const event = `{"eventId":"e","requestedTime":"2025-06-01T12:00:00Z"}`
	for token, want := range map[string]int{"": 401, "x" + adminToken: 401, adminToken: 200} {
		if code, answer, _ := r.Post(r.HTTP, "/api/v1/slots", token, event); code != want {
			t.Errorf("token %q: %d %v, want %d", token, code, answer, want)
		}
	}
	if code, _ := r.Get(r.HTTP, "/healthcheck"); code != 200 {
		t.Errorf("the guard is before /healthcheck too: %d", code)
	}
	if text := startError(t, "--example", "--slots", "sqlite::memory:", "--slots-auth", "--admin-token",
		""); !strings.Contains(text, "--slots-auth: needs --admin-token or --admin-client-ca") {
		t.Errorf("a guard that nobody could pass: %s", text)
	}
}

// A client with a certificate instead of a token asks the --admin address.
func TestSlotsAuthByCertificate(t *testing.T) {
	testenv.UseSQLite(t)
	certs := testenv.TestCerts(t)
	r := startServe(t, "--slots", "sqlite::memory:", "--slots-auth", "--admin", "127.0.0.1:0",
		"--admin-tls-cert", certs.Server.CertFile, "--admin-tls-key", certs.Server.KeyFile, "--admin-client-ca", certs.CAFile)
	if code, body := r.Get(r.HTTP, "/api/v1/configs"); code != 401 || !strings.Contains(body, "--admin address") {
		t.Errorf("without a certificate: %d %s", code, body)
	}
	client := http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: clientTLS(t, certs, &certs.Client)}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/api/v1/configs", "/slots", "/admin/rate-limit/configs"} {
		resp, err := client.Get("https://" + r.Admin + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s with a certificate: %s", path, resp.Status)
		}
	}
}
