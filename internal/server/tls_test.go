package server

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

func TestCertificatesReload(t *testing.T) {
	certs := testenv.TestCerts(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	install := func(p testenv.Pair, at time.Time) {
		for from, to := range map[string]string{p.CertFile: cert, p.KeyFile: key} {
			data, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(to, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	install(certs.Issue(t, "first"), time.Unix(1000, 0))
	var log bytes.Buffer
	conf, err := serverTLS(&certFiles{flags: "grpc", cert: cert, key: key, clientCA: certs.CAFile, log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if conf.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Error("client certificates are not required")
	}
	f := &certFiles{flags: "grpc", cert: cert, key: key, log: slog.New(slog.NewTextHandler(&log, nil))}
	current := func() *tls.Config { f.checked = time.Time{}; return f.current() }
	first := current()
	if current() != first {
		t.Error("reloaded without a change")
	}
	install(certs.Issue(t, "second"), time.Unix(2000, 0))
	second := current()
	if second == first {
		t.Error("not reloaded")
	}
	if err := os.WriteFile(cert, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	if current() != second || !strings.Contains(log.String(), "the old ones stay") {
		t.Errorf("a bad certificate is used; log: %s", log.String())
	}
	if _, err := serverTLS(&certFiles{flags: "grpc", cert: cert, key: key, log: slog.Default()}); err == nil || !strings.Contains(err.Error(), "--grpc-tls-cert") {
		t.Errorf("a bad certificate at start: %v", err)
	}
}
