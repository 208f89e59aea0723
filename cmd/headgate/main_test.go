package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/testenv"
	"github.com/headgate-rls/headgate/limit"
)

func TestClockNeverStepsBack(t *testing.T) {
	c := newClock()
	wall := c.start.UnixMicro()
	for i, step := range []struct{ wall, elapsed, want int64 }{
		{wall + 100, 100, wall + 100},
		{wall - 3_600_000_000, 200, wall + 200}, // set back an hour: goes on
		{wall - 3_599_999_000, 1200, wall + 1200},
		{wall + 5_000_000, 1300, wall + 5_000_000}, // set forward: follows
		{wall + 1400, 1400, wall + 5_000_100},
	} {
		if got := c.at(step.wall, step.elapsed); got != limit.Instant(step.want) {
			t.Errorf("step %d: got %d, want %d", i, int64(got)-wall, step.want-wall)
		}
	}
	if d := time.Since(newClock().now().Time()); d < 0 || d > time.Second {
		t.Errorf("a new clock is off by %v", d)
	}
}

func TestListen(t *testing.T) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "hg") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")

	l, err := listen(ctx, "grpc", "unix:"+path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(ctx, "grpc", "unix:"+path, 0); err == nil || !strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("second listener: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close() // as kill -9 leaves it
	l, err = listen(ctx, "grpc", "unix:"+path, 0)
	if err != nil {
		t.Fatalf("a stale socket is in the way: %v", err)
	}
	_ = l.Close()
	l, err = listen(ctx, "grpc", "unix:"+path, 0o602)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o602 {
		t.Errorf("mode of the socket: %v, %v", info, err)
	}
	_ = l.Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(ctx, "grpc", "unix:"+path, 0); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the way: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("the file was touched: %q, %v", data, err)
	}

	tcp, err := listen(ctx, "http", "127.0.0.1:0", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if _, err := listen(ctx, "http", tcp.Addr().String(), 0); err == nil || !strings.Contains(err.Error(), "--http") || !strings.Contains(err.Error(), "stop it or choose another") {
		t.Errorf("port in use: %v", err)
	}
}

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

func TestParseDescriptor(t *testing.T) {
	d, err := parseDescriptor(`a=1,b=x\,y=z,c=`)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range d.Entries {
		got += e.Key + "|" + e.Value + ";"
	}
	if got != "a|1;b|x,y=z;c|;" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"", "a", "=b", "a=1,", "a=1,=2"} {
		if _, err := parseDescriptor(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestBackendURLs(t *testing.T) {
	for url, want := range map[string]string{
		"memory":                 "want a URL such as memory://",
		"mongodb://x":            `no backend for scheme "mongodb"; known are memory, redis`,
		"memory://?max_keys=no":  "max_keys=no is not a positive number",
		"memory://?maxkeys=1":    `memory has no parameter "maxkeys"; it has max_keys, max_leases and max_records`,
		"redis://h:1?layout=zzz": "layout",
	} {
		if _, err := backendCaps(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	if caps, err := backendCaps("memory://?max_keys=5"); err != nil || caps.Name != "memory" {
		t.Errorf("%v %v", caps, err)
	}
}
