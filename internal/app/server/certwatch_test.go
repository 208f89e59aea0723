package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

// expired makes a certificate that has ended, and unborn one that is not valid yet.
func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}
func unborn(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }

// TestServiceWithAnExpiredCertificateIsNotReady: nobody can call it. It says so in the log, in /readyz and in the
// metrics, and is ready when the certificate is renewed, although nobody connects.
func TestServiceWithAnExpiredCertificateIsNotReady(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		authority := testenv.TestCerts(t)
		changes := map[string]func(*x509.Certificate){"expired on 20": expired, "not valid before 20": unborn}
		for name, change := range changes {
			pair := authority.Issue(t, "server", change)
			r := startServe(t, append(transport, "--grpc-tls-cert", pair.CertFile, "--grpc-tls-key", pair.KeyFile)...)
			code, text := r.Get(r.HTTP, "/readyz")
			if code != http.StatusServiceUnavailable || !strings.Contains(text, "certificates: "+pair.CertFile+" "+name) {
				t.Errorf("/readyz: %d %s", code, text)
			}
			if code, text := r.Get(r.HTTP, "/readyz?own"); code != http.StatusServiceUnavailable {
				t.Errorf("/readyz?own: %d %s", code, text)
			}
			awaitText(t, r.Log.String, `level=ERROR msg="a certificate in use must be renewed" use=listener file=`+pair.CertFile)
			awaitText(t, metricsOf(r), `headgate_certificate_not_after_seconds{file="`+pair.CertFile+`",use="listener"}`)
			install(t, authority.Issue(t, "renewed"), pair)
			for end := time.Now().Add(4 * certsEvery); ; time.Sleep(50 * time.Millisecond) {
				if code, text = r.Get(r.HTTP, "/readyz"); code == http.StatusOK {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("/readyz after the renewal: %d %s", code, text)
				}
			}
		}
	})
}

// TestReadyWhileTheStoreIsAway: another replica would do no better, so a rollout goes on, and probes keep the pod.
func TestReadyWhileTheStoreIsAway(t *testing.T) {
	r := startServe(t, "--backend", "redis://127.0.0.1:1?dial_timeout=100ms")
	for path, want := range map[string]int{"/readyz": 503, "/readyz?own": 200, "/healthcheck": 200} {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			code, text := r.Get(r.HTTP, path)
			if code == want {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d %s, want %d", path, code, text, want)
			}
		}
	}
}

// metricsOf returns what gets the page of metrics.
func metricsOf(r *serving.Server) func() string {
	return func() string { _, page := r.Get(r.Debug, "/metrics"); return page }
}

// awaitText waits until a text has a part.
func awaitText(t *testing.T, text func() string, part string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(text(), part); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q does not come: %s", part, text())
		}
	}
}

// install puts a certificate in the place of another one.
func install(t *testing.T, from, to testenv.Pair) {
	t.Helper()
	for a, b := range map[string]string{from.CertFile: to.CertFile, from.KeyFile: to.KeyFile} {
		data, err := os.ReadFile(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(b, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExpiredCertificatesDoNotReplaceValidOnes: a rotation to an expired certificate, one that is not valid yet, or
// authorities that have all expired changes nothing. What has expired itself makes room for anything.
func TestExpiredCertificatesDoNotReplaceValidOnes(t *testing.T) {
	authority := testenv.TestCerts(t)
	pair := authority.Issue(t, "server")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	bundle := func(list ...string) {
		text := ""
		for _, name := range list {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text += string(data)
		}
		if err := os.WriteFile(ca, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bundle(authority.CAFile)
	var log bytes.Buffer
	f := &certFiles{flags: "grpc", cert: pair.CertFile, key: pair.KeyFile, clientCA: ca,
		log: slog.New(slog.NewTextHandler(&log, nil))}
	if _, err := serverTLS(f); err != nil {
		t.Fatal(err)
	}
	current := func() *tls.Config { f.checked = time.Time{}; return f.current() }
	first := current()
	old := authority.Issue(t, "old", expired)
	for name, rotate := range map[string]func(){
		"an expired certificate":            func() { install(t, old, pair) },
		"a certificate of tomorrow":         func() { install(t, authority.Issue(t, "new", unborn), pair) },
		"authorities that have all expired": func() { install(t, authority.Issue(t, "good"), pair); bundle(old.CertFile) },
	} {
		log.Reset()
		rotate()
		if current() != first || !strings.Contains(log.String(), "the old ones stay in use") {
			t.Errorf("%s is used; log: %s", name, log.String())
		}
		bundle(authority.CAFile)
		install(t, authority.Issue(t, "good"), pair)
		first = current()
	}
	bundle(old.CertFile, authority.CAFile)
	if second := current(); second == first {
		t.Errorf("a bundle of which one authority is valid is refused: %s", log.String())
	}
}

// renewals are files of a certificate that cannot take the place of a valid one, by what the refusal says.
var renewals = []struct {
	want  string
	renew func(t *testing.T, authority *testenv.Certs, pair testenv.Pair)
}{
	{" expired on 20", func(t *testing.T, authority *testenv.Certs, pair testenv.Pair) {
		install(t, authority.Issue(t, "old", expired), pair)
	}},
	{" not valid before 20", func(t *testing.T, authority *testenv.Certs, pair testenv.Pair) {
		install(t, authority.Issue(t, "new", unborn), pair)
	}},
	{"private key does not match public key", func(t *testing.T, authority *testenv.Certs, pair testenv.Pair) {
		other := authority.Issue(t, "other")
		other.KeyFile = authority.Server.KeyFile
		install(t, other, pair)
	}},
	{"failed to find any PEM data", func(t *testing.T, _ *testenv.Certs, pair testenv.Pair) {
		if err := os.WriteFile(pair.CertFile, []byte("half of a cert"), 0o600); err != nil {
			t.Fatal(err)
		}
	}},
	{"no such file or directory", func(t *testing.T, _ *testenv.Certs, pair testenv.Pair) {
		if err := os.Remove(pair.KeyFile); err != nil {
			t.Fatal(err)
		}
	}},
}

// TestRefusedRenewalsAreSeen in /readyz?verbose, the status and the metrics, while the old certificate is served.
func TestRefusedRenewalsAreSeen(t *testing.T) {
	authority := testenv.TestCerts(t)
	pair := authority.Issue(t, "server")
	r := startServe(t, "--grpc-tls-cert", pair.CertFile, "--grpc-tls-key", pair.KeyFile, "--admin-token", adminToken)
	metric := `headgate_certificate_renewal_refused{file="` + pair.CertFile + `",listener="grpc"} `
	verbose := func() string { _, text := r.Get(r.HTTP, "/readyz?verbose"); return text }
	for _, c := range renewals {
		c.renew(t, authority, pair)
		awaitText(t, verbose, c.want)
		if text := verbose(); !strings.HasPrefix(text, "ready\n") ||
			!strings.Contains(text, "certificates: the changed files are refused: ") ||
			!strings.Contains(text, "; the old certificate, which expires on 20") {
			t.Errorf("%s: /readyz?verbose:\n%s", c.want, text)
		}
		if _, text := askAdmin(r, http.MethodGet, "/admin/status", ""); !strings.Contains(text,
			`{"name":"certificates","status":"FAILING","problem":"the changed files are refused: `) {
			t.Errorf("%s: /admin/status: %s", c.want, text)
		}
		awaitText(t, metricsOf(r), metric+"1\n")
		if err := checkHealth(t, r.GRPC, clientTLS(t, authority, nil)); err != nil {
			t.Errorf("%s: the old certificate is not served: %v", c.want, err)
		}
		install(t, authority.Issue(t, "renewed"), pair)
		awaitText(t, verbose, "certificates: ok\n")
		awaitText(t, metricsOf(r), metric+"0\n")
	}
}

// TestRefusedRenewalsAreLoggedOnce for each change of the files, and again after an hour.
func TestRefusedRenewalsAreLoggedOnce(t *testing.T) {
	authority := testenv.TestCerts(t)
	pair := authority.Issue(t, "server")
	var log bytes.Buffer
	f := &certFiles{flags: "grpc", cert: pair.CertFile, key: pair.KeyFile, log: slog.New(slog.NewTextHandler(&log, nil))}
	if _, err := serverTLS(f); err != nil {
		t.Fatal(err)
	}
	errors := func() int {
		for range 3 {
			f.checked = time.Time{}
			f.current()
		}
		defer log.Reset()
		return strings.Count(log.String(), "level=ERROR")
	}
	for _, c := range renewals {
		c.renew(t, authority, pair)
		first, second := errors(), errors()
		f.refused.logged = f.refused.logged.Add(-refusedAgain)
		if hour := errors(); first != 1 || second != 0 || hour != 1 {
			t.Errorf("%s: %d errors, then %d, and %d after an hour", c.want, first, second, hour)
		}
		install(t, authority.Issue(t, "renewed"), pair)
		if n := errors(); n != 0 {
			t.Errorf("%d errors about a good certificate", n)
		}
	}
}

// TestCertificatesThatEndSoonAreLogged once a day, and when they end.
func TestCertificatesThatEndSoonAreLogged(t *testing.T) {
	now := time.Now()
	renew := func(v certs.Validity) { v.Ends = now.AddDate(9, 0, 0); v.Note() } // or other tests would be warned, too
	v := certs.Validity{Use: certs.OfClient, File: t.Name(), Begins: now.AddDate(-1, 0, 0), Ends: now.AddDate(0, 0, 15)}
	v.Note()
	defer renew(v)
	short := certs.Validity{Use: certs.OfClient, File: "short-" + t.Name(), Begins: now, Ends: now.Add(24 * time.Hour)}
	short.Note()
	defer renew(short)
	var log bytes.Buffer
	w := &certWatch{log: slog.New(slog.NewTextHandler(&log, nil))}
	said := func(at time.Duration) string {
		log.Reset()
		w.look(now.Add(at))
		lines := slices.DeleteFunc(strings.Split(log.String(), "\n"), func(l string) bool {
			return !strings.Contains(l, "file="+t.Name())
		})
		return strings.Join(lines, "\n")
	}
	day := 24 * time.Hour
	for _, c := range []struct {
		at   time.Duration
		want string
	}{{0, ""}, {day + time.Hour, "level=WARN"}, {day + 2*time.Hour, ""}, {3 * day, "level=WARN"},
		{16 * day, "level=ERROR"}, {16*day + time.Hour, ""}} {
		if got := said(c.at); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("after %v: %q, want %q", c.at, got, c.want)
		}
	}
	if p := w.part(); p.Problem != "" {
		t.Errorf("%+v", p)
	}
	if short.EndsSoon(now.Add(12*time.Hour)) || !short.EndsSoon(now.Add(20*time.Hour)) {
		t.Error("a certificate of a day is warned of at the wrong time")
	}
}

// TestFailedHandshakesAreCounted on every port with TLS, by reason, and logged with the peer.
func TestFailedHandshakesAreCounted(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		authority, strangers := testenv.TestCerts(t), testenv.TestCerts(t)
		r := startServe(t, append(transport, "--grpc-tls-cert", authority.Server.CertFile, "--grpc-tls-key",
			authority.Server.KeyFile, "--grpc-client-ca", authority.CAFile, "--admin", "127.0.0.1:0", "--admin-tls-cert",
			authority.Server.CertFile, "--admin-tls-key", authority.Server.KeyFile, "--admin-client-ca", authority.CAFile)...)
		old, stranger := authority.Issue(t, "old", expired), strangers.Issue(t, "stranger")
		for i, c := range []struct {
			reason string
			client *testenv.Pair
			change func(*tls.Config)
		}{
			{"no client certificate", nil, nil},
			{"expired client certificate", &old, nil},
			{"unknown authority", &stranger, nil},
			{"refused by the client", &authority.Client, func(c *tls.Config) { c.RootCAs = strangers.Pool() }},
		} {
			conf := clientTLS(t, authority, c.client)
			if c.client != nil { // also shown to servers that would not know it
				pair := conf.Certificates[0]
				conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}
			if c.change != nil {
				c.change(conf)
			}
			conf.NextProtos = []string{"h2"}
			for name, address := range map[string]string{transport[1]: r.GRPC, "admin": r.Admin} {
				nc, err := tls.Dial("tcp", address, conf)
				if err == nil {
					_, _ = nc.Read(make([]byte, 1)) // the server's answer comes after the handshake
					nc.Close()
				}
				series := fmt.Sprintf(`headgate_tls_handshake_failures_total{reason=%q,transport=%q}`, c.reason, name)
				awaitText(t, metricsOf(r), series+" 1\n")
			}
			if i == 0 {
				awaitText(t, r.Log.String, `level=WARN msg="TLS handshake failed"`)
				awaitText(t, r.Log.String, `client=127.0.0.1:`)
			}
		}
	})
}
