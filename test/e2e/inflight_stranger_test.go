package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	datapb "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/test/testenv"
)

const strangerRules = `
domain: e2e
descriptors:
- key: tenant
  concurrency: [{threshold: 50, response: {statusCode: 429}}]
`

// A peer is a client of both ports.
type peer struct {
	t         *testing.T
	ask, logs *grpc.ClientConn
}

func newPeer(t *testing.T, h *service, creds credentials.TransportCredentials, from string) *peer {
	t.Helper()
	dial := func(addr string) *grpc.ClientConn {
		cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				return d.DialContext(ctx, "tcp", addr)
			}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		return cc
	}
	services := h.Services
	if services == "" {
		services = h.GRPC
	}
	return &peer{t, dial(h.GRPC), dial(services)}
}

// acquire asks under a proxy's name and returns the lease.
func (p *peer) acquire(owner, tenant string) string {
	p.t.Helper()
	ctx := metadata.AppendToOutgoingContext(p.t.Context(), "x-headgate-owner", owner)
	resp, err := rls.NewRateLimitServiceClient(p.ask).ShouldRateLimit(ctx,
		&rls.RateLimitRequest{Domain: "e2e", Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "tenant", Value: tenant}}}}})
	if err != nil {
		p.t.Fatal(err)
	}
	token := resp.GetDynamicMetadata().GetFields()["lease"].GetStringValue()
	if token == "" {
		p.t.Fatalf("no lease: %v", resp)
	}
	return token
}

// openLog opens an access log under a proxy's name that renews leases.
func (p *peer) openLog(owner string, tokens ...string) (hangUp func(), ended <-chan error) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), "x-headgate-owner", owner))
	p.t.Cleanup(cancel)
	s, err := als.NewAccessLogServiceClient(p.logs).StreamAccessLogs(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	m := &als.StreamAccessLogsMessage{Identifier: &als.StreamAccessLogsMessage_Identifier{Node: &corepb.Node{Id: owner}}}
	entries := &als.StreamAccessLogsMessage_HTTPAccessLogEntries{}
	for _, token := range tokens {
		fields, _ := structpb.NewStruct(map[string]any{"lease": token})
		entries.LogEntry = append(entries.LogEntry, &datapb.HTTPAccessLogEntry{CommonProperties: &datapb.AccessLogCommon{
			AccessLogType: datapb.AccessLogType_DownstreamPeriodic,
			Metadata: &corepb.Metadata{
				FilterMetadata: map[string]*structpb.Struct{"envoy.filters.http.ratelimit": fields}}}})
	}
	m.LogEntries = &als.StreamAccessLogsMessage_HttpLogs{HttpLogs: entries}
	if tokens != nil {
		if err := s.Send(m); err != nil {
			p.t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.RecvMsg(new(als.StreamAccessLogsResponse)) }()
	return cancel, done
}

// wantInFlight waits until the published count is n, and sees that it stays.
func wantInFlight(t *testing.T, h *service, n float64, stays time.Duration) {
	t.Helper()
	testenv.Eventually(t, 20*time.Second, fmt.Sprintf("have %v in flight", n), func() string {
		if got := h.Metric("headgate_requests_in_flight"); got != n {
			return fmt.Sprintf("there are %v", got)
		}
		return ""
	})
	for start := time.Now(); time.Since(start) < stays; time.Sleep(100 * time.Millisecond) {
		if got := h.Metric("headgate_requests_in_flight"); got != n {
			t.Fatalf("%v in flight, want %v", got, n)
		}
	}
}

// TestStrangerWithCertificate: where clients show certificates, who gives
// another proxy's name is another proxy: it neither ends that one's requests by
// hanging up, nor keeps them by asking.
func TestStrangerWithCertificate(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"unary", "grpc"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			certs := testenv.TestCerts(t)
			h := startService(t, "--transport", transport, "--rules", writeFile(t, "rules.yaml", strangerRules), "--backend",
				"memory://", "--owner-grace", "1s",
				"--grpc-tls-cert", certs.Server.CertFile, "--grpc-tls-key", certs.Server.KeyFile, "--grpc-client-ca", certs.CAFile)
			with := func(id string) *peer {
				pair := certs.Issue(t, "client",
					func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "spiffe", Host: "mesh", Path: id}} })
				cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
				if err != nil {
					t.Fatal(err)
				}
				return newPeer(t, h, credentials.NewTLS(&tls.Config{RootCAs: certs.Pool(), ServerName: "localhost",
					Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}), "127.0.0.1")
			}
			good, bad := with("/gateway"), with("/stranger")
			good.acquire("envoy-1", "x") // and has no access log
			hangUp, _ := bad.openLog("envoy-1", bad.acquire("envoy-1", "y"))
			wantInFlight(t, h, 2, 2*time.Second)
			hangUp()
			wantInFlight(t, h, 1, 4*time.Second)

			hangUp, _ = good.openLog("envoy-1", good.acquire("envoy-1", "x"))
			wantInFlight(t, h, 2, 2*time.Second)
			hangUp()
			stop := make(chan struct{})
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						_, _ = rls.NewRateLimitServiceClient(bad.ask).ShouldRateLimit(
							metadata.AppendToOutgoingContext(context.Background(), "x-headgate-owner", "envoy-1"),
							&rls.RateLimitRequest{Domain: "other", Descriptors: []*common.RateLimitDescriptor{
								{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a", Value: "b"}}}}})
					}
				}
			}()
			wantInFlight(t, h, 0, 0)
			close(stop)
			<-asked
		})
	}
}

// TestStrangerOnServicesPort: who reaches only the port of access logs, and
// gives a proxy's name and tokens that it made up, does nothing to its requests.
func TestStrangerOnServicesPort(t *testing.T) {
	t.Parallel()
	h := startService(t, "--transport", "unary", "--rules", writeFile(t, "rules.yaml", strangerRules), "--backend",
		"memory://", "--owner-grace", "1s")
	good := newPeer(t, h, insecure.NewCredentials(), "127.0.0.1")
	bad := newPeer(t, h, insecure.NewCredentials(), "127.0.0.2")
	good.acquire("envoy-1", "x")
	for range 3 {
		hangUp, _ := bad.openLog("envoy-1", "forged", "", good.acquire("envoy-2", "x")[:40])
		time.Sleep(300 * time.Millisecond)
		hangUp()
	}
	wantInFlight(t, h, 4, 4*time.Second)
}

// TestManyAccessLogs: a host that opens as many access logs as it may, and says
// nothing, keeps no other host out.
func TestManyAccessLogs(t *testing.T) {
	t.Parallel()
	h := startService(t, "--transport", "unary", "--rules", writeFile(t, "rules.yaml", strangerRules), "--backend",
		"memory://", "--access-logs", "64", "--access-logs-per-peer", "48")
	bad := newPeer(t, h, insecure.NewCredentials(), "127.0.0.2")
	good := newPeer(t, h, insecure.NewCredentials(), "127.0.0.1")
	refused := 0
	var list []<-chan error
	for range 100 {
		_, ended := bad.openLog("envoy-1")
		list = append(list, ended)
	}
	testenv.Eventually(t, 20*time.Second, "have some refused", func() string {
		if n := h.Metric("headgate_access_log_total", `event="refused"`); n != 52 {
			return fmt.Sprintf("%v are refused", n)
		}
		return ""
	})
	for _, ended := range list {
		select {
		case err := <-ended:
			if status.Code(err) != grpccodes.ResourceExhausted {
				t.Errorf("a stream ends with %v", err)
			}
			refused++
		case <-time.After(50 * time.Millisecond):
		}
	}
	if refused != 52 {
		t.Errorf("%d of 100 streams were refused, want 52", refused)
	}
	_, ended := good.openLog("envoy-1", good.acquire("envoy-1", "x"))
	testenv.Eventually(t, 20*time.Second, "have a lease renewed", func() string {
		if n := h.Metric("headgate_leases_total", `event="renewed"`); n != 1 {
			return fmt.Sprintf("%v are renewed", n)
		}
		return ""
	})
	select {
	case err := <-ended:
		t.Errorf("the other host's access log ends with %v", err)
	default:
	}
}
