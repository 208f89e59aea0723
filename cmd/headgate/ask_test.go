package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

func TestAskOverTLS(t *testing.T) {
	certs := testenv.TestCerts(t)
	r := startServe(t, "--grpc-tls-cert", certs.Server.CertFile, "--grpc-tls-key", certs.Server.KeyFile,
		"--grpc-client-ca", certs.CAFile)
	ask := func(args ...string) (int, string) {
		var out bytes.Buffer
		args = append([]string{"ask", "example", "client=tls", "--addr", r.GRPC, "--timeout", "5s"}, args...)
		return run(context.Background(), args, strings.NewReader(""), &out, &out), out.String()
	}
	if code, out := ask("--tls-ca", certs.CAFile, "--tls-cert", certs.Client.CertFile, "--tls-key",
		certs.Client.KeyFile); code != 0 || !strings.Contains(out, "per-client") {
		t.Errorf("with a client certificate: %d %s", code, out)
	}
	for _, args := range [][]string{nil, {"--tls"}, {"--tls-ca", certs.CAFile}} {
		if code, out := ask(args...); code != exitError || !strings.Contains(out, r.GRPC) {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
}

// TestAskAtTheWrongDoor: the error says what is wrong with the address.
func TestAskAtTheWrongDoor(t *testing.T) {
	certs := testenv.TestCerts(t)
	plain := startServe(t)
	encrypted := startServe(t, "--grpc-tls-cert", certs.Server.CertFile, "--grpc-tls-key", certs.Server.KeyFile)
	expired := certs.Issue(t, "server", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	ended := startServe(t, "--grpc-tls-cert", expired.CertFile, "--grpc-tls-key", expired.KeyFile)
	for _, c := range []struct {
		addr, flag, want string
	}{
		{ended.GRPC, "--tls-ca=" + certs.CAFile, "the server's certificate is not valid: x509: certificate has expired or " +
			"is not yet valid; expired on 20"},
		{encrypted.GRPC, "--tls", "the server's certificate is not valid: x509: certificate signed by unknown authority"},
		{plain.HTTP, "", "an HTTP/1.1 server answers there; --addr is the gRPC address"},
		{plain.Services, "", "it has no such method: unknown method /envoy.service.ratelimit.v3.RateLimitService/" +
			"ShouldRateLimit; --addr is the gRPC address (--grpc), whose port is 8081 by default"},
		{plain.GRPC, "--tls", "does it talk TLS there?"},
		{encrypted.GRPC, "", "does it want TLS (--tls)?"},
		{"https://" + encrypted.GRPC, "", "the server's certificate is not valid: x509: certificate signed by unknown"},
		{"http://" + encrypted.GRPC, "", "does it want TLS (--tls)?"},
		{plain.GRPC, "--count=0", "--count: 0: want 1 or more"},
	} {
		args := []string{"ask", "example", "client=a", "--addr", c.addr, "--timeout", "5s"}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		if code, out := headgate(t, args...); code == exitOK || code == exitNo || !strings.Contains(out, c.want) ||
			strings.Count(out, "\n") != 1 {
			t.Errorf("%v: %d %q, want %q", args, code, out, c.want)
		}
	}
}

// TestAskAtAURL: the URL of the gRPC address is good, too.
func TestAskAtAURL(t *testing.T) {
	certs := testenv.TestCerts(t)
	plain := startServe(t)
	encrypted := startServe(t, "--grpc-tls-cert", certs.Server.CertFile, "--grpc-tls-key", certs.Server.KeyFile)
	for _, args := range [][]string{{"http://" + plain.GRPC}, {"http://" + plain.GRPC + "/"},
		{"https://" + encrypted.GRPC + "/", "--tls-ca", certs.CAFile}} {
		if code, out := headgate(t, append([]string{"ask", "example", "client=a", "--timeout", "5s", "--addr"},
			args...)...); code != exitOK {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
}

// TestAskReserves as a request through Envoy does, which names no hits.
func TestAskReserves(t *testing.T) {
	rules := writeRules(t, "domain: llm\ndescriptors:\n- key: user\n  reserve: {amount: 10}\n"+
		"  rate_limit: {unit: day, requests_per_unit: 15}\n")
	code, out := headgate(t, "ask", "llm", "user=a", "--rules", rules, "-n", "2")
	if code != exitOverLimit || strings.Count(out, "OK  ") != 1 || !strings.Contains(out, "remaining=5") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
