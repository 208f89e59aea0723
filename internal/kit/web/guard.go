package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// GuardConfig says who may use admin paths. Its zero value lets nobody in.
type GuardConfig struct {
	// Token is what "Authorization: Bearer" must have; empty: no token will do.
	Token string
	// Named are other tokens that do as well, by the names that logs have for them.
	Named map[string]string
	// Verify returns the subject of a JWT, which does in the place of a token, or why it is refused;
	// nil: none does. If the error is [ErrUnverified], the caller may come again.
	Verify func(ctx context.Context, token string) (subject string, err error)
	// Networks are those from which requests are let in; empty: all. It does not matter for Unix
	// sockets, which have modes.
	Networks []netip.Prefix
	// Setting is where the token is set, for messages; empty: HEADGATE_ADMIN_TOKEN.
	Setting string
	// ClientCertificates lets requests in that came over TLS with a client
	// certificate that was verified. Set it only for a listener that demands such certificates
	// (tls.RequireAndVerifyClientCert) from authorities of your own (ClientCAs).
	ClientCertificates bool
	// Refusals, if set, counts and logs the requests that are not let in.
	Refusals *Refusals
}

// ErrUnverified is why a JWT can be neither accepted nor refused at the moment.
var ErrUnverified = errors.New("the JWT cannot be verified at the moment")

// A Guard stands in front of admin paths, and of others that need the same. Without a token and without
// certificates it admits nobody.
type Guard struct {
	c      GuardConfig // without the tokens
	tokens []token
	origin *http.CrossOriginProtection
}

// A token is kept as its SHA-256 only, beside the name that logs have for its user.
type token struct {
	sum    [sha256.Size]byte
	caller string
}

// NewGuard returns a guard. It is an error if a token has characters that a
// header cannot carry, such as the line end of a file; the error does not show the token.
func NewGuard(c GuardConfig) (*Guard, error) {
	c.Setting = cmp.Or(c.Setting, "HEADGATE_ADMIN_TOKEN")
	g := &Guard{origin: http.NewCrossOriginProtection()}
	if c.Token != "" {
		if err := g.add(c.Token, "admin-token", c.Setting); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Named)) {
		if err := g.add(c.Named[name], "token:"+name, "of "+name); err != nil {
			return nil, err
		}
	}
	c.Token, c.Named = "", nil
	g.c = c
	return g, nil
}

func (g *Guard) add(text, caller, where string) error {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the admin token (%s) must be visible ASCII without spaces or line ends", where)
	}
	t := token{sha256.Sum256([]byte(text)), printable(caller)}
	if i := slices.IndexFunc(g.tokens, func(other token) bool { return other.sum == t.sum }); i >= 0 {
		return fmt.Errorf("%s and %s are the same token: logs could not tell who has changed something",
			g.tokens[i].caller, t.caller)
	}
	g.tokens = append(g.tokens, t)
	return nil
}

// Wrap returns a handler that passes to next the requests that the guard lets in. It answers the
// rest with 401; with 403 if they come from a network that is not allowed, or from a browser on
// behalf of another site; and with 503 if the guard cannot check their credentials at the moment.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(code int, reason, text string) {
			g.c.Refusals.note(r, code, reason)
			Error(w, code, text)
		}
		if !g.reachable(r.RemoteAddr) {
			refuse(http.StatusForbidden, "network", "requests from your address are not allowed here")
			return
		}
		caller, reason, err := g.admits(r)
		switch {
		case errors.Is(err, ErrUnverified):
			w.Header().Set("Retry-After", "5")
			refuse(http.StatusServiceUnavailable, "unverified JWT", err.Error())
			return
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(http.StatusUnauthorized, reason, err.Error())
			return
		}
		if g.origin.Check(r) != nil {
			refuse(http.StatusForbidden, otherSite, otherSiteMessage)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

type callerKey struct{}

// CallerOf returns how the guard knows who sent a request, for logs: "admin-token" for who has the
// token, "token:" and the name of another one, "jwt:" and a subject, or "certificate:" and a name in the
// client certificate, in ASCII and of at most 128 bytes. It is empty if the request did not pass a
// guard.
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
	return printable("certificate:" + name)
}

// printable is the name of a caller for logs and histories: different names stay different. Bytes
// that are no visible ASCII are written %XX, and what is too long ends in # and a part of its hash.
func printable(name string) string {
	var b []byte
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == '%' || c == '#' {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	if len(b) > maxCaller {
		sum := sha256.Sum256([]byte(name))
		end := fmt.Sprintf("#%x", sum[:8])
		b = append(b[:maxCaller-len(end)], end...)
	}
	return string(b)
}

// reachable reports whether requests from an address are let in.
func (g *Guard) reachable(remote string) bool {
	if len(g.c.Networks) == 0 {
		return true
	}
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote == "" || strings.HasPrefix(remote, "@") || strings.HasPrefix(remote, "/") // a Unix socket
	}
	ip := from.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(g.c.Networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// admits returns who sent a request that may pass, or why it may not: in a word, and for the caller.
func (g *Guard) admits(r *http.Request) (caller, reason string, err error) {
	if g.c.ClientCertificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return certificateCaller(r.TLS.VerifiedChains[0][0]), "", nil
	}
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", "no token", g.refusal()
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", "no token", g.refusal()
	}
	// Sums are compared, all of them and always whole, so that the time taken does not
	// depend on the tokens, their length included.
	text = strings.TrimLeft(text, " ")
	sum := sha256.Sum256([]byte(text))
	for i := range g.tokens {
		if subtle.ConstantTimeCompare(sum[:], g.tokens[i].sum[:]) == 1 {
			caller = g.tokens[i].caller
		}
	}
	switch {
	case caller != "":
		return caller, "", nil
	case g.c.Verify == nil || strings.Count(text, ".") != 2:
		return "", "wrong token", g.wrong()
	}
	subject, err := g.c.Verify(r.Context(), text)
	switch {
	case errors.Is(err, ErrUnverified):
		return "", "", err
	case err != nil:
		return "", "bad JWT", fmt.Errorf("the JWT is refused: %w", err)
	}
	return printable("jwt:" + subject), "", nil
}

// wrong returns the error of a request that sent other credentials than it needs.
func (g *Guard) wrong() error {
	if len(g.tokens) == 0 {
		return g.refusal()
	}
	return fmt.Errorf("%w; the token that was sent is another one", g.refusal())
}

// refusal says what a request needs.
func (g *Guard) refusal() error {
	switch {
	case len(g.tokens) > 0 && g.c.Verify != nil:
		return errors.New("this path needs the token in " + g.c.Setting + " or a JWT, as Authorization: Bearer")
	case len(g.tokens) > 0:
		return errors.New("this path needs the token in " + g.c.Setting + ", as Authorization: Bearer")
	case g.c.Verify != nil:
		return errors.New("this path needs a JWT, as Authorization: Bearer")
	case g.c.ClientCertificates:
		return errors.New("this path needs a client certificate: use the --admin address, whose clients show one")
	}
	return errors.New("the admin API is disabled: set HEADGATE_ADMIN_TOKEN and send it as Authorization: Bearer, " +
		"or set --admin-client-ca and send a client certificate")
}

// Refusals count the requests that guards do not let in, and log them: at most one a second, never with a token.
type Refusals struct {
	log      *slog.Logger
	limit    background.LogLimit
	counters metrics.Counters
	row      metrics.Row
}

// NewRefusals returns a count of none.
func NewRefusals(log *slog.Logger) *Refusals {
	r := &Refusals{log: log, limit: background.LogLimit{PerSecond: 1}}
	r.row = r.counters.Row(refusedRow.Name, refusedRow.Help, refusedRow.Labels)
	for _, at := range refusalReasons {
		r.counters.Of(strconv.Itoa(at.code), at.reason)
	}
	return r
}

// note notes that a request was refused. Nil ignores it.
func (r *Refusals) note(req *http.Request, code int, reason string) {
	if r == nil {
		return
	}
	r.counters.Of(strconv.Itoa(code), reason).Inc()
	if ok, skipped := r.limit.Allow(); ok {
		r.log.Warn("request to a guarded path refused", "client", req.RemoteAddr, "path", printable(req.URL.Path),
			"code", code, "reason", reason, "suppressed", skipped)
	}
}
