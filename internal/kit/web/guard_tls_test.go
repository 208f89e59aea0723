package web

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestGuardOverTLS: a listener that demands client certificates lets its own clients
// in without a token; one that does not, nobody.
func TestGuardOverTLS(t *testing.T) {
	certs := testenv.TestCerts(t)
	g, err := NewGuard(GuardConfig{ClientCertificates: true})
	if err != nil {
		t.Fatal(err)
	}
	handler := g.Wrap(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, c := range []struct {
		name            string
		demands, brings bool
		want            int // 0: no connection
	}{
		{"a client of ours", true, true, 204},
		{"nobody's client", true, false, 0},
		{"a listener that asks for nothing", false, true, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			live := httptest.NewUnstartedServer(handler)
			live.TLS = certs.ServerTLS(t, c.demands)
			live.StartTLS()
			defer live.Close()
			config := &tls.Config{RootCAs: certs.Pool()}
			if c.brings {
				config = certs.ClientTLS(t)
			}
			transport := &http.Transport{TLSClientConfig: config}
			defer transport.CloseIdleConnections()
			resp, err := (&http.Client{Transport: transport}).Post(live.URL+"/admin/x", "", nil)
			if err == nil {
				resp.Body.Close()
			}
			if (err != nil) != (c.want == 0) || err == nil && resp.StatusCode != c.want {
				t.Errorf("%v %v, want %d", resp, err, c.want)
			}
		})
	}
}
