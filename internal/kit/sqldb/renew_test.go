package sqldb

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/test/testenv"
)

// inTLS speaks TLS to clients of a PostgreSQL server, as the server itself does, and demands a certificate of them.
func inTLS(t *testing.T, server string, issued *testenv.Certs) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	conf := issued.ServerTLS(t, true)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				if _, err := io.ReadFull(client, make([]byte, 8)); err != nil { // the request for TLS
					return
				}
				if _, err := client.Write([]byte("S")); err != nil {
					return
				}
				inside := tls.Server(client, conf)
				if inside.HandshakeContext(t.Context()) != nil {
					return
				}
				behind, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer behind.Close()
				go func() { _, _ = io.Copy(behind, inside) }()
				_, _ = io.Copy(inside, behind)
			}()
		}
	}()
	return l.Addr().String()
}

// Renewed certificates and authorities are read for the next connection, and their end is known.
func TestRenewedCertificates(t *testing.T) {
	server, right, wrong := testenv.SharedDatabase(t, testenv.Postgres), testenv.TestCerts(t), testenv.TestCerts(t)
	dir := t.TempDir()
	testenv.Install(t, dir, wrong.CAFile, wrong.Client)
	at, err := url.Parse(server.CreateDatabase("tls"))
	check(t, err)
	at.Host = inTLS(t, at.Host, right)
	at.RawQuery = fmt.Sprintf("sslmode=verify-full&sslrootcert=%[1]s/ca&sslcert=%[1]s/cert&sslkey=%[1]s/key", dir)
	db := mustOpen(t, Config{URL: at.String()})
	for _, c := range []struct {
		what, authorities string
		shown             testenv.Pair
		ok                bool
	}{
		{"all of another authority", wrong.CAFile, wrong.Client, false},
		{"a new authority", right.CAFile, wrong.Client, false},
		{"a new certificate", right.CAFile, right.Client, true},
	} {
		testenv.Install(t, dir, c.authorities, c.shown)
		if err := db.Write.PingContext(soon(t)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for _, file := range []string{"ca", "cert"} {
		if !slices.ContainsFunc(certs.InUse(), func(v certs.Validity) bool { return v.File == filepath.Join(dir, file) }) {
			t.Errorf("%s is not known to be in use", file)
		}
	}
}

// A changed password is read for the next connection.
func TestRenewedPassword(t *testing.T) {
	at, err := url.Parse(testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("password"))
	check(t, err)
	right, _ := at.User.Password()
	file := filepath.Join(t.TempDir(), "passfile")
	install := func(password string) { check(t, os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600)) }
	install("old")
	at.User = url.User(at.User.Username())
	at.RawQuery += "&passfile=" + url.QueryEscape(file)
	db := mustOpen(t, Config{URL: at.String()})
	if err := db.Write.PingContext(soon(t)); err == nil {
		t.Fatal("the password is not asked for")
	}
	install(right)
	check(t, db.Write.PingContext(soon(t)))
}
