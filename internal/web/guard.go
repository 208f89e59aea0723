package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
)

// GuardConfig says who may use admin paths. Its zero value lets nobody in.
type GuardConfig struct {
	// Token is what "Authorization: Bearer" must have; empty: no token will do.
	Token string
	// Setting is where the token is set, for messages; empty: HEADGATE_ADMIN_TOKEN.
	Setting string
	// ClientCertificates lets requests in that came over TLS with a client
	// certificate that was verified. Set it only for a listener that demands such certificates
	// (tls.RequireAndVerifyClientCert) from authorities of your own (ClientCAs).
	ClientCertificates bool
}

// A Guard stands in front of admin paths, and of others that need the same. Without a token and without
// certificates it admits nobody.
type Guard struct {
	sum          [sha256.Size]byte // of the token, which itself is not kept
	token        bool
	setting      string
	certificates bool
	origin       *http.CrossOriginProtection
}

// NewGuard returns a guard. It is an error if the token has characters that a
// header cannot carry, such as the line end of a file; the error does not tell it.
func NewGuard(c GuardConfig) (*Guard, error) {
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("the admin token (%s) must be visible ASCII without spaces or line ends", c.setting())
	}
	return &Guard{
		sum: sha256.Sum256([]byte(c.Token)), token: c.Token != "", setting: c.setting(), certificates: c.ClientCertificates,
		origin: http.NewCrossOriginProtection(),
	}, nil
}

func (c GuardConfig) setting() string { return cmp.Or(c.Setting, "HEADGATE_ADMIN_TOKEN") }

// Wrap returns a handler that hands on to next what the guard lets in. It answers
// the rest with 401, and with 403 what a browser sends on behalf of another site.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok := g.admits(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			Error(w, http.StatusUnauthorized, g.refusal())
			return
		}
		if g.origin.Check(r) != nil {
			Error(w, http.StatusForbidden, "the request comes from a page of another site")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

type callerKey struct{}

// CallerOf returns how the guard knows who sent a request, for logs: "admin-token" for who has the
// token, or "certificate:" and a name in the client certificate, in ASCII and of at most 128 bytes. It
// is empty if the request did not pass a guard.
func CallerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}

const maxCaller = 128

// certificateCaller is the caller with a certificate: its URI or its DNS name, else its common name,
// else its serial number.
func certificateCaller(c *x509.Certificate) string {
	name := c.Subject.CommonName
	switch {
	case len(c.URIs) > 0:
		name = c.URIs[0].String()
	case len(c.DNSNames) > 0:
		name = c.DNSNames[0]
	case name == "" && c.SerialNumber != nil:
		name = "serial " + c.SerialNumber.String()
	}
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, "certificate:"+name)
	return name[:min(len(name), maxCaller)]
}

// admits reports whether a request may pass, and who sent it.
func (g *Guard) admits(r *http.Request) (caller string, ok bool) {
	if g.certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return certificateCaller(r.TLS.VerifiedChains[0][0]), true
	}
	values := r.Header.Values("Authorization")
	if !g.token || len(values) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	// Sums are compared, and always whole, so that the time taken tells nothing
	// about the token, its length included.
	sum := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	return "admin-token", subtle.ConstantTimeCompare(sum[:], g.sum[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

func (g *Guard) refusal() string {
	switch {
	case g.token:
		return "this path needs the token in " + g.setting + ", as Authorization: Bearer"
	case g.certificates:
		return "this path needs a client certificate: use the --admin address, whose clients show one"
	}
	return "the admin API is disabled: set HEADGATE_ADMIN_TOKEN and send it as Authorization: Bearer, or set --admin-client-ca and send a client certificate"
}
