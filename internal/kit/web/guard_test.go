package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/test/testenv"
)

func TestErrorTellsStatusAndMessage(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", "3")
	before := time.Now().Truncate(time.Second)
	Error(w, 429, "Rate limit exceeded for key: user-123")
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%q: %v", w.Body, err)
	}
	stamp, err := time.Parse("2006-01-02T15:04:05Z", body["timestamp"].(string))
	if err != nil || stamp.Before(before) || stamp.After(time.Now()) {
		t.Errorf("timestamp %v: %v", body["timestamp"], err)
	}
	delete(body, "timestamp")
	want := map[string]any{"status": 429.0, "error": "Too Many Requests",
		"message": "Rate limit exceeded for key: user-123"}
	for k, v := range want {
		if body[k] != v {
			t.Errorf("%s is %v, want %v", k, body[k], v)
		}
	}
	if len(body) != len(want) || w.Code != 429 || w.Header().Get("Content-Type") != "application/json" ||
		w.Header().Get("Retry-After") != "3" {
		t.Errorf("%d %v %v", w.Code, w.Header(), body)
	}
}

func guarded(t *testing.T, c GuardConfig, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	g, err := NewGuard(c)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/admin/x", nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })).ServeHTTP(w, r)
	return w
}

func authorization(values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header["Authorization"] = values }
}

func certificate(r *http.Request) {
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
}

func TestGuardAdmitsOnlyTheConfigured(t *testing.T) {
	token := GuardConfig{Token: "s3cret/token=="}
	both := GuardConfig{Token: "s3cret/token==", ClientCertificates: true}
	for _, c := range []struct {
		name   string
		config GuardConfig
		change func(*http.Request)
		want   int
		says   string
	}{
		{"nothing configured", GuardConfig{}, nil, 401, "the admin API is disabled"},
		{"nothing configured, an empty token", GuardConfig{}, authorization("Bearer "), 401, "disabled"},
		{"nothing configured, a certificate", GuardConfig{}, certificate, 401, "disabled"},
		{"the token", token, authorization("Bearer s3cret/token=="), 204, ""},
		{"the scheme in other letters", token, authorization("bearer  s3cret/token=="), 204, ""},
		{"no token", token, nil, 401, "the token in HEADGATE_ADMIN_TOKEN"},
		{"another token", token, authorization("Bearer s3cret/token="), 401, "the token that was sent is another one"},
		{"an empty token", token, authorization("Bearer"), 401, ""},
		{"another scheme", token, authorization("Basic s3cret/token=="), 401, ""},
		{"the token twice", token, authorization("Bearer s3cret/token==", "Bearer s3cret/token=="), 401, ""},
		{"a certificate where the token is demanded", token, certificate, 401, ""},
		{"a certificate", both, certificate, 204, ""},
		{"the token instead of a certificate", both, authorization("Bearer s3cret/token=="), 204, ""},
		{"TLS without a certificate", GuardConfig{ClientCertificates: true},
			func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, 401, "client certificate"},
		{"another site's page", both, func(r *http.Request) { certificate(r); r.Header.Set("Sec-Fetch-Site", "cross-site") },
			403, "another site"},
		{"a page of our own", both, func(r *http.Request) { certificate(r); r.Header.Set("Sec-Fetch-Site", "same-origin") },
			204, ""},
	} {
		w := guarded(t, c.config, c.change)
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, w.Code, w.Body, c.want, c.says)
		}
		if (w.Code == 401) != (w.Header().Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%s: WWW-Authenticate is %q", c.name, w.Header().Get("WWW-Authenticate"))
		}
		if strings.Contains(w.Body.String(), "s3cret") {
			t.Errorf("%s: the answer tells the token", c.name)
		}
	}
}

func TestGuardRefusesTokensThatNoHeaderCanCarry(t *testing.T) {
	for _, token := range []string{"s3cret\n", " s3cret", "s3c ret", "gehéim", "\x00"} {
		if _, err := NewGuard(GuardConfig{Token: token}); err == nil ||
			strings.Contains(err.Error(), strings.TrimSpace(token)) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// TestHandlersLearnTheCaller: a handler learns who passed the guard.
func TestHandlersLearnTheCaller(t *testing.T) {
	uri := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/ops"}
	for want, c := range map[string]*x509.Certificate{
		"certificate:spiffe://example.org/ops": {URIs: []*url.URL{uri},
			DNSNames: []string{"a.example"}},
		"certificate:a.example": {DNSNames: []string{"a.example"}, Subject: pkix.Name{CommonName: "alice"}},
		"certificate:al%0Ace":   {Subject: pkix.Name{CommonName: "al\nce"}},
		"certificate:serial 7":  {SerialNumber: big.NewInt(7)},
		"certificate:" + strings.Repeat("x", 128-len("certificate:")): {
			Subject: pkix.Name{CommonName: strings.Repeat("x", 128-len("certificate:"))}},
		"admin-token": nil,
	} {
		g, err := NewGuard(GuardConfig{Token: "secret", ClientCertificates: true})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/admin/x", nil)
		r.Header.Set("Authorization", "Bearer secret")
		if c != nil {
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}
		}
		got := ""
		g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = CallerOf(r.Context()) })).ServeHTTP(
			httptest.NewRecorder(), r)
		if got != want {
			t.Errorf("the caller is %q, want %q", got, want)
		}
	}
	if got := CallerOf(t.Context()); got != "" {
		t.Errorf("without a guard the caller is %q", got)
	}
}

// TestCallersStayDifferent: whatever their names have in common, and however long they are.
func TestCallersStayDifferent(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("x", 200)
	for _, name := range []string{
		"jwt:alice", "jwt:Müller", "jwt:Möller", "jwt:Иван", "jwt:Олег", "jwt:a?b", "jwt:a\nb", "jwt:a%0Ab", "jwt:a\xffb",
		"jwt:" + long + "1", "jwt:" + long + "2", printable("jwt:" + long + "1"),
	} {
		shown := printable(name)
		if other, there := seen[shown]; there {
			t.Errorf("%q and %q are both %q", other, name, shown)
		}
		seen[shown] = name
		if len(shown) > maxCaller ||
			strings.ContainsFunc(shown, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is %q", name, shown)
		}
	}
}

// TestGuardTellsTokensApart: each token has its name in logs, and no two are the same.
func TestGuardTellsTokensApart(t *testing.T) {
	g, err := NewGuard(GuardConfig{Token: "first", Named: map[string]string{"ops": "second", "ci_bot": "third"}})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"first": "admin-token", "second": "token:ops", "third": "token:ci_bot",
		"fourth": "", "": "", "ops": ""} {
		got := ""
		r := httptest.NewRequest("GET", "/admin/x", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = CallerOf(r.Context()) })).ServeHTTP(w, r)
		if got != want || (want == "") != (w.Code == 401) {
			t.Errorf("%q is %q, %d; want %q", token, got, w.Code, want)
		}
	}
	for says, c := range map[string]GuardConfig{
		"admin-token and token:ops are the same": {Token: "secret", Named: map[string]string{"ops": "secret"}},
		"token:a and token:b are the same":       {Named: map[string]string{"b": "secret", "a": "secret"}},
		"of ops":                                 {Named: map[string]string{"ops": "sec ret"}},
		"of empty":                               {Named: map[string]string{"empty": ""}},
	} {
		if _, err := NewGuard(c); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestGuardAdmitsNetworks: who comes from elsewhere gets 403, also with the token.
func TestGuardAdmitsNetworks(t *testing.T) {
	c := GuardConfig{Token: "secret", Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("2001:db8::/32")}}
	for from, want := range map[string]int{
		"10.1.2.3:400": 204, "[::ffff:10.1.2.3]:400": 204, "[2001:db8::1]:400": 204, "@": 204, "/run/admin.sock": 204,
		"11.1.2.3:400": 403, "[2001:db9::1]:400": 403, "[::1]:400": 403, "[fe80::1%eth0]:1": 403, "nonsense": 403,
	} {
		w := guarded(t, c, func(r *http.Request) { r.RemoteAddr = from; r.Header.Set("Authorization", "Bearer secret") })
		if w.Code != want {
			t.Errorf("%s: %d %s, want %d", from, w.Code, w.Body, want)
		}
		if w := guarded(t, c,
			func(r *http.Request) { r.RemoteAddr = from; r.Header.Set("X-Forwarded-For", "10.1.2.3") }); w.Code == 204 {
			t.Errorf("%s: let in without the token", from)
		}
	}
}

// TestGuardAsksAboutJWTs: what is no token of its own and looks like a JWT is verified.
func TestGuardAsksAboutJWTs(t *testing.T) {
	verify := func(_ context.Context, token string) (string, error) {
		switch token {
		case "a.good.one":
			return "al\nice", nil
		case "no.keys.yet":
			return "", ErrUnverified
		}
		return "", errors.New("it has expired")
	}
	for _, c := range []struct {
		token, says string
		want        int
	}{
		{"a.good.one", "", 204}, {"a.bad.one", "the JWT is refused: it has expired", 401},
		{"no.keys.yet", "at the moment", 503},
		{"secret", "", 204}, {"two.parts", "or a JWT", 401}, {"", "or a JWT", 401},
	} {
		w := guarded(t, GuardConfig{Token: "secret", Verify: verify}, authorization("Bearer "+c.token))
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) ||
			(w.Code == 503) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("%s: %d %v %s, want %d with %q", c.token, w.Code, w.Header(), w.Body, c.want, c.says)
		}
	}
}

// TestRefusalsAreCountedAndLogged by code and reason: the log has the peer, at most once a second, and never the token.
func TestRefusalsAreCountedAndLogged(t *testing.T) {
	var log testenv.Log
	r := NewRefusals(slog.New(slog.NewTextHandler(&log, nil)))
	c := GuardConfig{Token: "secret", Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Refusals: r,
		Verify: func(context.Context, string) (string, error) { return "", errors.New("no") }}
	const each = 20
	for range each {
		for _, authorize := range []func(*http.Request){nil, authorization("Bearer wr0ng"), authorization("Bearer a.b.c"),
			func(r *http.Request) { r.RemoteAddr = "10.0.0.1:7" }, authorization("Bearer secret")} {
			guarded(t, c, authorize)
		}
	}
	seen := map[string]float64{}
	r.Rows()[0].Each(func(labels []string, value float64, _ *metrics.Counts) { seen[strings.Join(labels, " ")] = value })
	for _, what := range []string{"401 no token", "401 wrong token", "401 bad JWT", "403 network"} {
		if seen[what] != each {
			t.Errorf("%s: %v, want %d (of %v)", what, seen[what], each, seen)
		}
	}
	lines := strings.Count(log.String(), "level=WARN")
	if lines < 1 || lines > 3 || !strings.Contains(log.String(), "client=192.0.2.1:1234") {
		t.Errorf("%d lines: %s", lines, log.String())
	}
	for _, token := range []string{"wr0ng", "a.b.c", "secret"} {
		if strings.Contains(log.String(), token) {
			t.Errorf("the log has %s: %s", token, log.String())
		}
	}
}
