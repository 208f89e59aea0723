package xds

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headgate-rls/headgate/test/controlplane"
	"github.com/headgate-rls/headgate/test/testenv"
)

// rename puts copies of files in the place of others, as a mounted Secret is renewed.
func rename(t *testing.T, files map[string]string) {
	t.Helper()
	for from, to := range files {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to+".new", data, 0o600)
		}
		if err == nil {
			err = os.Rename(to+".new", to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Certificates and authorities are read for each connection: after all of them were
// replaced on both sides, the client is back with the next one, and not before.
func TestRenewedCertificatesAreUsedByTheNextConnection(t *testing.T) {
	dir := t.TempDir()
	cert, key, ca := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")
	old, renewed := testenv.TestCerts(t), testenv.TestCerts(t)
	serving := make(chan *testenv.Certs, 1) // who vouches now
	serving <- old
	creds := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := <-serving
			serving <- c
			pair, err := tls.LoadX509KeyPair(c.Server.CertFile, c.Server.KeyFile)
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"},
				ClientCAs: c.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
			}, err
		},
	})
	files := func(c *testenv.Certs) map[string]string {
		return map[string]string{c.Client.CertFile: cert, c.Client.KeyFile: key, c.CAFile: ca}
	}
	rename(t, files(old))
	plane := controlplane.Start(t, grpc.Creds(creds))
	f := follow(t, plane, func(o *Options) { o.TLS = &TLS{Cert: cert, Key: key, CA: ca, ServerName: "localhost"} })
	plane.Send(limited("a", 1))
	f.want("a=1")

	<-serving
	serving <- renewed
	plane.Restart() // the old files are of no use any more
	plane.Send(limited("a", 2))
	f.eventually("refused", func() string {
		if s := f.Status(); !s.Connected && s.Error != "" && s.Failures > 1 {
			return "refused"
		}
		return ""
	})
	f.want("a=1")
	rename(t, files(renewed))
	f.want("a=1 a=2")
	f.eventually("connected", func() string {
		if f.Status().Connected {
			return "connected"
		}
		return ""
	})
}
