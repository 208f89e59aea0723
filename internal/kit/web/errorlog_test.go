package web

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestHandshakesDoNotFloodTheLog: any client can make handshakes fail. They are logged once a second, in
// the log's own format and with the number of suppressed lines. A handler that panics is logged as well.
func TestHandshakesDoNotFloodTheLog(t *testing.T) {
	var log testenv.Log
	certs := testenv.TestCerts(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", certs.ServerTLS(t, false))
	if err != nil {
		t.Fatal(err)
	}
	server := Bounds{}.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("on purpose") }),
		time.Second,
		slog.New(slog.NewJSONHandler(&log, nil)))
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	const attacks = 200
	began := time.Now()
	for range attacks {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "not a handshake\r\n\r\n")
		_, _ = io.ReadAll(c) // the server closes it
		_ = c.Close()
	}
	lines := strings.Count(log.String(), `"msg":"HTTP connection failed"`)
	if most := int(time.Since(began)/time.Second) + 2; lines < 1 || lines > most {
		t.Errorf("%d lines for %d handshakes, want 1 to %d:\n%s", lines, attacks, most, log.String())
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certs.Pool()}}}
	if resp, err := client.Get("https://" + l.Addr().String()); err == nil {
		resp.Body.Close()
		t.Error("the handler did not panic")
	}
	eventually(t, "the panic is in the log", func() bool {
		return strings.Contains(log.String(), `"level":"ERROR","msg":"HTTP handler failed","error":"http: panic serving`)
	})
}
