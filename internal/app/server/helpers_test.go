package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

// runServer is Run with settings as `headgate serve` reads them.
func runServer(ctx context.Context, flags []string, log io.Writer) error {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	conf := config.Define(fs)
	if err := fs.Parse(flags); err != nil {
		return err
	}
	if err := config.Resolve(fs, conf, os.Environ(), nil); err != nil {
		return err
	}
	return Run(ctx, Config{Settings: conf, Log: conf.Logger(log), Version: "test"})
}

func startServe(t *testing.T, flags ...string) *serving.Server {
	t.Helper()
	return serving.Start(t, runServer, flags...)
}

// startError runs a server that must not start, and returns what its error says.
func startError(t *testing.T, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	flags = append([]string{"--grpc", "127.0.0.1:0", "--http", "", "--services", "", "--debug", ""}, flags...)
	err := runServer(ctx, flags, io.Discard)
	if err == nil {
		t.Fatalf("a server with %v starts", flags)
	}
	return err.Error()
}

// sendAdmin sends a request with the token to the HTTP address, and returns its status.
func sendAdmin(r *serving.Server, method, path, body string) int {
	r.Helper()
	code, _ := askAdmin(r, method, path, body)
	return code
}

// askAdmin does as sendAdmin, and returns the answer, too.
func askAdmin(r *serving.Server, method, path, body string) (code int, answer string) {
	r.Helper()
	req, err := http.NewRequest(method, "http://"+r.HTTP+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("X-Request-Id", "req-7")
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// clientTLS is how a client with this certificate, unless it is nil, talks to servers of
// the authority.
func clientTLS(t *testing.T, certs *testenv.Certs, own *testenv.Pair) *tls.Config {
	t.Helper()
	authority, err := os.ReadFile(certs.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	conf.RootCAs.AppendCertsFromPEM(authority)
	if own == nil {
		return conf
	}
	pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	conf.Certificates = []tls.Certificate{pair}
	return conf
}

// checkHealth asks the server at addr over TLS whether it is healthy.
func checkHealth(t *testing.T, addr string, conf *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func exampleRequest() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "example", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "client", Value: "alice"}}},
	}}
}

// onTransports runs f with the flags of each transport.
func onTransports(t *testing.T, f func(t *testing.T, transport []string)) {
	for _, name := range []string{"unary", "grpc"} {
		t.Run(name, func(t *testing.T) { f(t, []string{"--transport", name}) })
	}
}
