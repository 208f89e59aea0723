package jwks

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/headgate-rls/headgate/test/testenv"
)

const issuer, audience = "https://idp.example", "headgate"

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A signer makes tokens.
type signer struct {
	kid     string
	alg     jose.SignatureAlgorithm
	private crypto.PrivateKey
	public  any
}

func newSigners(t testing.TB) map[string]signer {
	t.Helper()
	r := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	e := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must[struct{}](t)(struct{}{}, err)
	return map[string]signer{
		"rsa": {"rsa", jose.RS256, r, &r.PublicKey}, "ec": {"ec", jose.ES256, e, &e.PublicKey},
		"ed": {"ed", jose.EdDSA, private, public},
	}
}

// sign makes a token of claims.
func (s signer) sign(t testing.TB, claims any) string {
	t.Helper()
	opt := (&jose.SignerOptions{}).WithType("JWT")
	if s.kid != "" {
		opt = opt.WithHeader("kid", s.kid)
	}
	by := must[jose.Signer](t)(jose.NewSigner(jose.SigningKey{Algorithm: s.alg, Key: s.private}, opt))
	return must[string](t)(jwt.Signed(by).Claims(claims).Serialize())
}

func setOf(t testing.TB, list ...signer) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, s := range list {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.public, KeyID: s.kid, Use: "sig"})
	}
	return must[[]byte](t)(json.Marshal(set))
}

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// claims are valid ones with what change has.
func claims(change map[string]any) map[string]any {
	all := map[string]any{"iss": issuer, "aud": audience, "sub": "alice", "iat": now.Unix(),
		"exp": now.Add(time.Minute).Unix()}
	for k, v := range change {
		all[k] = v
		if v == nil {
			delete(all, k)
		}
	}
	return all
}

func verifier(t testing.TB, source string, clock func() time.Time) *Verifier {
	t.Helper()
	return must[*Verifier](t)(New(Config{Source: source, Issuer: issuer, Audience: audience, Leeway: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler), Now: clock}))
}

func fixed() time.Time { return now }

func fileOf(t testing.TB, text []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "jwks.json")
	must[struct{}](t)(struct{}{}, os.WriteFile(name, text, 0o600))
	return name
}

// TestTokens: a token with a known key and the required claims is accepted, and no other.
func TestTokens(t *testing.T) {
	s := newSigners(t)
	v := verifier(t, fileOf(t, setOf(t, s["rsa"], s["ec"], s["ed"])), fixed)
	for name, by := range s {
		if sub, err := v.Verify(t.Context(), by.sign(t, claims(nil))); sub != "alice" || err != nil {
			t.Errorf("%s: %q %v", name, sub, err)
		}
	}
	rsaKey := s["rsa"].private.(*rsa.PrivateKey)
	publicPEM := pem.EncodeToMemory(
		&pem.Block{Type: "PUBLIC KEY", Bytes: must[[]byte](t)(x509.MarshalPKIXPublicKey(&rsaKey.PublicKey))})
	none := func(header string) string {
		body, _ := json.Marshal(claims(nil))
		return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(body) + "."
	}
	good := s["rsa"].sign(t, claims(nil))
	parts := strings.Split(good, ".")
	other := newSigners(t)
	other384 := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	brought := other["rsa"]
	embedded := must[jose.Signer](t)(jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: brought.private},
		&jose.SignerOptions{EmbedJWK: true}))
	for _, c := range []struct {
		name, token string
		want        error
	}{
		{"nothing", "", errForm},
		{"no JWT", "a.b.c", errForm},
		{"alg none", none(`{"alg":"none","kid":"rsa"}`), errForm},
		{"alg None", none(`{"alg":"None"}`), errForm},
		{"HS256 with the public key", signer{"rsa", jose.HS256, publicPEM, nil}.sign(t, claims(nil)), errForm},
		{"RS512", signer{"rsa", jose.RS512, rsaKey, nil}.sign(t, claims(nil)), errForm},
		{"PS256", signer{"rsa", jose.PS256, rsaKey, nil}.sign(t, claims(nil)), errForm},
		{"ES384", signer{"ec", jose.ES384, other384, nil}.sign(t, claims(nil)), errForm},
		{"too long", good + strings.Repeat("x", maxToken), errForm},
		{"another key under the same name", other["rsa"].sign(t, claims(nil)), errSignature},
		{"a key of its own", must[string](t)(jwt.Signed(embedded).Claims(claims(nil)).Serialize()), errKey},
		{"the name of a key of another kind", signer{"ec", jose.RS256, rsaKey, nil}.sign(t, claims(nil)), errKey},
		{"an unknown name", signer{"other", jose.RS256, rsaKey, nil}.sign(t, claims(nil)), errKey},
		{"no name among several keys", signer{"", jose.RS256, rsaKey, nil}.sign(t, claims(nil)), errKey},
		{"other claims under a signature", parts[0] + "." + strings.Split(none("{}"), ".")[1] + "x." + parts[2],
			errSignature},
		{"expired", s["rsa"].sign(t, claims(map[string]any{"exp": now.Add(-11 * time.Second).Unix()})), errExpired},
		{"just expired", s["rsa"].sign(t, claims(map[string]any{"exp": now.Add(-9 * time.Second).Unix()})), nil},
		{"no expiry", s["rsa"].sign(t, claims(map[string]any{"exp": nil})), errNoExpiry},
		{"expiry 0", s["rsa"].sign(t, claims(map[string]any{"exp": 0})), errExpired},
		{"expiry that is text", s["rsa"].sign(t, claims(map[string]any{"exp": "never"})), errSignature},
		{"not yet", s["rsa"].sign(t, claims(map[string]any{"nbf": now.Add(time.Minute).Unix()})), errEarly},
		{"issued in the future", s["rsa"].sign(t, claims(map[string]any{"iat": now.Add(time.Minute).Unix()})), errEarly},
		{"another issuer", s["rsa"].sign(t, claims(map[string]any{"iss": issuer + "/"})), errIssuer},
		{"no issuer", s["rsa"].sign(t, claims(map[string]any{"iss": nil})), errIssuer},
		{"another audience", s["rsa"].sign(t, claims(map[string]any{"aud": "shop"})), errAudience},
		{"no audience", s["rsa"].sign(t, claims(map[string]any{"aud": nil})), errAudience},
		{"several audiences", s["rsa"].sign(t, claims(map[string]any{"aud": []string{"shop", audience}})), nil},
		{"no subject", s["rsa"].sign(t, claims(map[string]any{"sub": nil})), errSubject},
	} {
		sub, err := v.Verify(t.Context(), c.token)
		if !errors.Is(err, c.want) || (sub != "") != (c.want == nil) {
			t.Errorf("%s: %q %v, want %v", c.name, sub, err, c.want)
		}
	}
}

// TestKeySets: only keys that verify our signatures are used, and a set without any is an error.
func TestKeySets(t *testing.T) {
	s := newSigners(t)
	short := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 1024))
	long := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	one := func(key jose.JSONWebKey) []byte {
		return must[[]byte](t)(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key}}))
	}
	public := s["rsa"].public
	for says, text := range map[string][]byte{
		"no public key for RS256, ES256 or EdDSA":  []byte(`{"keys":[]}`),
		"no public key for RS256, ES256 or  EdDSA": []byte(`{"keys":[{"kty":"new"}]}`),
		"no public key ":          one(jose.JSONWebKey{Key: []byte("shared secret"), KeyID: "rsa"}),
		"no public  key":          one(jose.JSONWebKey{Key: &short.PublicKey}),
		"no  public key":          one(jose.JSONWebKey{Key: &long.PublicKey}),
		" no public key":          one(jose.JSONWebKey{Key: public, Use: "enc"}),
		"no public key f":         one(jose.JSONWebKey{Key: public, Algorithm: "RS512"}),
		"no public key fo":        one(s["rsa"].privateKey()),
		"is no JWKS":              []byte(`[]`),
		"more than 100":           []byte(`{"keys":[` + strings.Repeat(`{},`, 100) + `{}]}`),
		"more than 1048576 bytes": []byte(`{"keys":[]}` + strings.Repeat(" ", maxBytes)),
	} {
		says = strings.Join(strings.Fields(says), " ")
		if _, err := New(Config{Source: fileOf(t, text)}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, want %q", text, err, says)
		}
	}
	mixed := []byte(fmt.Sprintf(`{"keys":[{"kty":"new"},%s`, setOf(t, s["ec"])[len(`{"keys":[`):]))
	if _, err := verifier(t, fileOf(t, mixed), fixed).Verify(t.Context(), s["ec"].sign(t, claims(nil))); err != nil {
		t.Errorf("a set with a key of a kind that is not known: %v", err)
	}
	nameless := s["ed"]
	nameless.kid = ""
	if _, err := verifier(t, fileOf(t, setOf(t, nameless)), fixed).Verify(t.Context(),
		nameless.sign(t, claims(nil))); err != nil {
		t.Errorf("the only key, without a name: %v", err)
	}
	if _, err := New(Config{Source: filepath.Join(t.TempDir(), "missing")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func (s signer) privateKey() jose.JSONWebKey { return jose.JSONWebKey{Key: s.private, KeyID: s.kid} }

// A source serves what the test sets.
type source struct {
	text  atomic.Pointer[[]byte] // nil: it fails
	asked atomic.Int64
}

func (s *source) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.asked.Add(1)
	if text := s.text.Load(); text != nil {
		_, _ = w.Write(*text)
		return
	}
	w.WriteHeader(http.StatusInternalServerError)
}

func (s *source) serve(text []byte) { s.text.Store(&text) }

// TestRotation: a new key is found when the first token has it, an old one goes, and who sends unknown
// names does not have the source asked more than once in a while.
func TestRotation(t *testing.T) {
	from := new(source)
	live := httptest.NewServer(from)
	defer live.Close()
	var clock atomic.Int64
	v := verifier(t, live.URL, func() time.Time { return now.Add(time.Duration(clock.Load())) })
	s := newSigners(t)
	wants := func(what string, by signer, want error) {
		t.Helper()
		if _, err := v.Verify(t.Context(), by.sign(t, claims(nil))); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	wants("the source has never answered", s["rsa"], ErrUnavailable)
	from.serve(setOf(t, s["rsa"]))
	wants("a moment later", s["rsa"], ErrUnavailable)
	clock.Add(int64(retryIn))
	wants("the source answers", s["rsa"], nil)
	wants("a key that is not there", s["ec"], errKey)
	from.serve(setOf(t, s["ec"]))
	clock.Add(int64(retryIn))
	wants("a new key", s["ec"], nil)
	wants("the old key", s["rsa"], errKey)
	before := from.asked.Load()
	for range 20 {
		wants("a key that is not there", s["ed"], errKey)
	}
	if asked := from.asked.Load() - before; asked != 0 {
		t.Errorf("the source was asked %d times in a moment", asked)
	}
	from.serve(setOf(t, s["ed"]))
	clock.Add(int64(retryIn))
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := v.Verify(gone, s["ed"].sign(t, claims(nil))); err != nil {
		t.Errorf("a caller who has gone keeps others from a new key: %v", err)
	}
	from.serve(setOf(t, s["ec"]))
	clock.Add(int64(retryIn))
	wants("the key of before", s["ec"], nil)
	live.Close()
	clock.Add(int64(retryIn))
	wants("the source is away, an unknown key", s["ed"], errKey)
	wants("the source is away", s["ec"], nil)
}

// TestBadSources: what is no key set leaves the last good one in force.
func TestBadSources(t *testing.T) {
	from := new(source)
	live := httptest.NewServer(from)
	defer live.Close()
	s := newSigners(t)
	from.serve(setOf(t, s["rsa"]))
	v := verifier(t, live.URL, fixed)
	if err := v.refresh(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	elsewhere := httptest.NewServer(http.RedirectHandler(live.URL, http.StatusFound))
	defer elsewhere.Close()
	for name, text := range map[string][]byte{"empty": {}, "no keys": []byte(`{"keys":[]}`),
		"endless": []byte(strings.Repeat(" ", 2*maxBytes))} {
		from.serve(text)
		if err := v.refresh(t.Context(), 0); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := v.Verify(t.Context(), s["rsa"].sign(t, claims(nil))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	from.serve(setOf(t, s["rsa"]))
	if err := verifier(t, elsewhere.URL, fixed).refresh(t.Context(), 0); err == nil ||
		!strings.Contains(err.Error(), "302") {
		t.Errorf("a redirection: %v", err)
	}
}

// TestRunReadsAgain: a file and a URL each in their time, and sooner after a failure. The log has a failure once, and
// its end. Run ends with its context.
func TestRunReadsAgain(t *testing.T) {
	s := newSigners(t)
	for source, every := range map[string]time.Duration{"": fileEvery, "http://127.0.0.1/": urlEvery} {
		synctest.Test(t, func(t *testing.T) {
			name, log := fileOf(t, setOf(t, s["rsa"])), new(testenv.Log)
			put := func(text []byte) { must[struct{}](t)(struct{}{}, os.WriteFile(name, text, 0o600)) }
			c := Config{Source: name, Log: slog.New(slog.NewTextHandler(log, nil))}
			if source != "" {
				c.Source = source + filepath.Base(name)
			}
			v := must[*Verifier](t)(New(c))
			if source != "" {
				v.client.Transport = http.NewFileTransport(http.Dir(filepath.Dir(name)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); v.Run(ctx) }()
			after := func(wait time.Duration, kid string, failures, ends int) {
				t.Helper()
				time.Sleep(wait)
				synctest.Wait()
				text := log.String()
				if keys := *v.keys.Load(); keys[0].KeyID != kid || strings.Count(text, "could not read") != failures ||
					strings.Count(text, "can be read again") != ends {
					t.Errorf("%q: the key %s, want %s, %d failures, %d ends:\n%s", source, keys[0].KeyID, kid, failures, ends, text)
				}
			}
			const moment = time.Millisecond
			after(moment, "rsa", 0, 0)
			put([]byte("{}"))
			after(every-2*moment, "rsa", 0, 0)
			after(moment, "rsa", 1, 0)
			after(10*retryIn, "rsa", 1, 0)
			put(setOf(t, s["ec"]))
			after(min(every, retryIn), "ec", 1, 1)
			put(setOf(t, s["ed"]))
			after(every-moment, "ec", 1, 1)
			after(moment, "ed", 1, 1)
			cancel()
			<-ended
		})
	}
}

// TestTokensThatNameNoKey are verified by a key that is the only one.
func TestTokensThatNameNoKey(t *testing.T) {
	s := newSigners(t)
	token := signer{"", s["rsa"].alg, s["rsa"].private, nil}.sign(t, claims(nil))
	for _, c := range []struct {
		keys []signer
		want error
	}{{[]signer{s["rsa"]}, nil}, {[]signer{s["rsa"], s["ec"]}, errKey}, {[]signer{s["ec"]}, errKey}} {
		v := verifier(t, fileOf(t, setOf(t, c.keys...)), fixed)
		if _, err := v.Verify(t.Context(), token); !errors.Is(err, c.want) {
			t.Errorf("%d keys: %v, want %v", len(c.keys), err, c.want)
		}
	}
}

// silent is a source that does not answer.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestSilentSources: reading ends, and so does the wait of those who need a key. The log has nothing of a reading that
// was given up.
func TestSilentSources(t *testing.T) {
	s := newSigners(t)
	synctest.Test(t, func(t *testing.T) {
		log := new(testenv.Log)
		v := must[*Verifier](t)(New(Config{Source: "http://127.0.0.1/", Log: slog.New(slog.NewTextHandler(log, nil))}))
		v.client.Transport = silent{}
		takes := func(what string, want time.Duration, f func()) {
			t.Helper()
			began := time.Now()
			f()
			if time.Since(began) != want {
				t.Errorf("%s takes %v, want %v", what, time.Since(began), want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		takes("a reading that is given up", time.Second, func() { _ = v.refresh(ctx, 0) })
		if log.String() != "" {
			t.Error(log)
		}
		takes("a reading", readTime, func() { _ = v.refresh(t.Context(), 0) })
		v.turn <- struct{}{} // another reading does not end
		takes("a token", 2*readTime, func() {
			if _, err := v.Verify(t.Context(), s["ec"].sign(t, claims(nil))); !errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
		})
	})
}
