package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// socketDir is short: the path of a socket has room for 108 bytes only, and
// the directories of tests are long.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestUnixSocket(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		rules := writeFile(t, "rules.yaml", limitRules)
		dir := socketDir(t)
		for _, c := range []struct{ name, address string }{
			{"path", "unix:" + filepath.Join(dir, "rls.sock")},
			{"abstract", "unix:@" + filepath.Base(dir)},
		} {
			t.Run(c.name, func(t *testing.T) {
				if c.name == "abstract" && runtime.GOOS != "linux" {
					t.Skip("only Linux has abstract sockets")
				}
				insideHour()
				s := startService(t, "--rules", rules, "--grpc", c.address)
				f := startFront(t, env.envoy, setup{Services: []string{c.address}})
				f.WantCodes(codes(5, 200)+" 429", "/", "x-key", "five")

				// A killed service leaves its socket behind; the next one must
				// not stumble over it.
				s.Kill()
				f.WantCodes("500", "/", "x-key", "five")
				startService(t, "--rules", rules, "--grpc", c.address)
				testenv.Eventually(t, 10*time.Second, "have the new service used", func() string {
					if a := f.Get("/", "x-key", "five"); a.Code != 200 {
						return a.String()
					}
					return ""
				})
			})
		}
	})
}

// tlsCluster has Envoy speak TLS to headgate, and show a certificate if there
// is one.
func tlsCluster(certs *testenv.Certs, client testenv.Pair) string {
	own := ""
	if client.CertFile != "" {
		own = fmt.Sprintf("tls_certificates: [{certificate_chain: {filename: %q}, private_key: {filename: %q}}], ",
			client.CertFile, client.KeyFile)
	}
	return fmt.Sprintf(`transport_socket: {name: envoy.transport_sockets.tls, typed_config: {
		"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, sni: localhost,
		common_tls_context: {%svalidation_context: {trusted_ca: {filename: %q},
			match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: localhost}}]}}}}`, own, certs.CAFile)
}

// TestTLS replaces the server's certificate while requests are answered.
func TestTLS(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		for _, mutual := range []bool{false, true} {
			t.Run(fmt.Sprintf("mutual=%v", mutual), func(t *testing.T) {
				t.Parallel()
				certs := testenv.TestCerts(t)
				live := livePair(t, certs.Server)
				flags := []string{"--rules", writeFile(t, "rules.yaml", drainRules), "--grpc-tls-cert", live.CertFile,
					"--grpc-tls-key", live.KeyFile,
					// So that connections are made after the change too.
					"--grpc-max-connection-age", "300ms", "--grpc-max-connection-age-grace", "5s"}
				client := testenv.Pair{}
				if mutual {
					flags = append(flags, "--grpc-client-ca", certs.CAFile)
					client = certs.Client
				}
				s := startService(t, flags...)
				f := startFront(t, env.envoy, setup{Services: []string{s.GRPC}, Cluster: tlsCluster(certs, client)})
				renewUnderLoad(t, s, f, certs, live)
				if mutual {
					wantStrangersRefused(t, env, s, certs)
				}
			})
		}
	})
}

// livePair copies a certificate to where a service reads it.
func livePair(t *testing.T, from testenv.Pair) testenv.Pair {
	t.Helper()
	dir := t.TempDir()
	live := testenv.Pair{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	replacePair(t, live, from)
	return live
}

// replacePair puts another certificate in the place of a service's one. For a
// moment certificate and key do not belong together.
func replacePair(t *testing.T, live, fresh testenv.Pair) {
	t.Helper()
	for _, c := range [][2]string{{fresh.CertFile, live.CertFile}, {fresh.KeyFile, live.KeyFile}} {
		data, err := os.ReadFile(c[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c[1]+".tmp", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(c[1]+".tmp", c[1]); err != nil {
			t.Fatal(err)
		}
	}
}

func renewUnderLoad(t *testing.T, s *service, f *front, certs *testenv.Certs, live testenv.Pair) {
	t.Helper()
	l := startLoad(t, f, 2, "/", []string{"x-key", "counted"}, func(a answer) string {
		if a.Code != 200 || a.Remaining() < 0 {
			return fmt.Sprintf("a call failed: %v", a)
		}
		return ""
	})
	for _, name := range []string{"second", "third"} {
		replacePair(t, live, certs.Issue(t, name))
		testenv.Eventually(t, 10*time.Second, "be shown the "+name+" certificate", func() string {
			if shown, err := shownName(s, certs.ClientTLS(t)); err != nil || shown != name {
				return fmt.Sprintf("%q, %v", shown, err)
			}
			return ""
		})
		l.More(t, 100)
	}
	// Files that are no certificate change nothing.
	bad := writeFile(t, "bad.pem", "no certificate")
	replacePair(t, live, testenv.Pair{CertFile: bad, KeyFile: bad})
	testenv.Eventually(t, 10*time.Second, "have the bad certificate reported", func() string {
		if shown, err := shownName(s, certs.ClientTLS(t)); err != nil || shown != "third" {
			t.Fatalf("the certificate that is shown is %q (%v), want the old one", shown, err)
		}
		if !strings.Contains(s.Log(), "the old ones stay") {
			return lastLines(s.Log(), 3)
		}
		return ""
	})
	l.More(t, 100)
	l.Stop(t)
	// Envoy did connect again: else it would have met one certificate only.
	if n := f.clusterStat("headgate", "upstream_cx_total"); n < 3 {
		t.Errorf("Envoy has made %d connections to headgate, want several", n)
	}
}

// shownName returns the common name of the certificate that a service shows.
func shownName(s *service, config *tls.Config) (string, error) {
	config.ServerName, config.NextProtos = "localhost", []string{"h2"}
	conn, err := tls.Dial("tcp", s.GRPC, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// wantStrangersRefused asks a service that demands client certificates from
// Envoys that have none, or one of somebody else's.
func wantStrangersRefused(t *testing.T, env environment, s *service, certs *testenv.Certs) {
	t.Helper()
	for name, client := range map[string]testenv.Pair{
		"no certificate":              {},
		"a certificate of another CA": testenv.TestCerts(t).Client,
		"an expired certificate of this": certs.Issue(t, "late",
			func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
	} {
		f := startFront(t, env.envoy, setup{Services: []string{s.GRPC}, Cluster: tlsCluster(certs, client)})
		if a := f.Get("/", "x-key", "counted"); a.Code != 500 {
			t.Errorf("an Envoy with %s is answered: %v", name, a)
		}
	}
}
