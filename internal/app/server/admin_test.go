package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A jwtIssuer signs tokens with a key of its own.
type jwtIssuer struct {
	private *ecdsa.PrivateKey
	set     []byte // JWKS
}

func newJWTIssuer(t *testing.T) *jwtIssuer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(
		jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &private.PublicKey, KeyID: "k1", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return &jwtIssuer{private, set}
}

// sign makes a token with an audience, which expires after some time.
func (i *jwtIssuer) sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid, audience string,
	expires time.Duration) string {
	t.Helper()
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", kid))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(by).Claims(jwt.Claims{
		Issuer: "https://idp.example", Audience: jwt.Audience{audience}, Subject: "alice",
		Expiry: jwt.NewNumericDate(time.Now().Add(expires)),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestWhoMayUseAdminPaths: tokens with names and JWTs do, the log says whose change it was, and all
// else has its documented status and changes nothing.
func TestWhoMayUseAdminPaths(t *testing.T) {
	testenv.UseSQLite(t)
	const ops = "token-of-ops-in-tests"
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	t.Setenv("HEADGATE_ADMIN_TOKEN_OPS", ops)
	i := newJWTIssuer(t)
	live := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(i.set) }))
	defer live.Close()
	r := startServe(t, "--policies", "sqlite:"+filepath.Join(t.TempDir(), "policies.db"),
		"--admin-jwks", live.URL, "--admin-jwt-issuer", "https://idp.example", "--admin-jwt-audience", "headgate",
		"--admin-jwt-leeway", "2m")
	public, err := x509.MarshalPKIXPublicKey(&i.private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	good := i.sign(t, jose.ES256, i.private, "k1", "headgate", time.Minute)
	claims := strings.Split(good, ".")[1]
	for n, c := range []struct {
		name, token string
		want        int
	}{
		{"nothing", "", 401},
		{"another token", "another-token-of-tests", 401},
		{"the name of a token", "ops", 401},
		{"a JWT that has expired", i.sign(t, jose.ES256, i.private, "k1", "headgate", -time.Hour), 401},
		{"a JWT for others", i.sign(t, jose.ES256, i.private, "k1", "shop", time.Minute), 401},
		{"a JWT with alg none", "eyJhbGciOiJub25lIn0." + claims + ".", 401},
		{"HS256 with the public key", i.sign(t, jose.HS256, publicPEM, "k1", "headgate", time.Minute), 401},
		{"an unknown key", i.sign(t, jose.ES256, i.private, "k2", "headgate", time.Minute), 401},
		{"another issuer's key", i.sign(t, jose.ES256, newJWTIssuer(t).private, "k1", "headgate", time.Minute), 401},
		{"the token", adminToken, 201},
		{"a named token", ops, 201},
		{"a JWT", good, 201},
		{"a JWT within the leeway", i.sign(t, jose.ES256, i.private, "k1", "headgate", -time.Minute), 201},
	} {
		key := fmt.Sprint("client:", n)
		policy := `{"key":"` + key + `","type":"FIXED_WINDOW","capacity":1,"windowSeconds":60}`
		code, answer, _ := r.Post(r.HTTP, "/admin/policies", c.token, policy)
		if code != c.want {
			t.Errorf("%s: %d %v, want %d", c.name, code, answer, c.want)
		}
		if there := sendAdmin(r, "GET", "/admin/policies/"+key, "") == 200; there != (c.want == 201) {
			t.Errorf("%s: the policy is there: %v", c.name, there)
		}
	}
	wantAudit(t, r, "by=admin-token", "by=token:ops", "by=jwt:alice", "by=jwt:alice")
	live.Close()
	if code, answer, _ := r.Post(r.HTTP, "/admin/policies?dryRun=true", good,
		`{"key":"a","type":"FIXED_WINDOW","capacity":1,"windowSeconds":60}`); code != 200 {
		t.Errorf("the keys are away, those that were read last are not in force: %d %v", code, answer)
	}
	for _, secret := range []string{adminToken, ops, claims} {
		if strings.Contains(r.Log.String(), secret) {
			t.Errorf("the log has a secret: %s", r.Log)
		}
	}
}

// wantAudit wants a change by each.
func wantAudit(t *testing.T, r *serving.Server, who ...string) {
	t.Helper()
	log := r.Log.String()
	for _, by := range who {
		if !strings.Contains(log, by) {
			t.Errorf("no change is %s: %s", by, log)
		}
	}
	if n := strings.Count(log, `msg="policy changed"`); n != len(who) {
		t.Errorf("%d changes are in the log, want %d", n, len(who))
	}
}

// TestJWTsWithoutKeys: until there are keys, nobody knows whether a JWT is good.
func TestJWTsWithoutKeys(t *testing.T) {
	r := startServe(t, "--admin-jwks", "http://127.0.0.1:1/keys", "--admin-jwt-issuer", "https://idp.example",
		"--admin-jwt-audience", "headgate")
	i := newJWTIssuer(t)
	code, answer, header := r.Post(r.HTTP, "/admin/reset/a%7Cb=c", i.sign(t, jose.ES256, i.private, "k1", "headgate",
		time.Minute), "")
	if code != 503 || header.Get("Retry-After") == "" || !strings.Contains(answer["message"].(string),
		"could not be read yet") {
		t.Errorf("%d %v %v", code, header, answer)
	}
	if code, answer, _ := r.Post(r.HTTP, "/admin/reset/a%7Cb=c", "", ""); code != 401 {
		t.Errorf("without a JWT: %d %v", code, answer)
	}
}

// TestAdminNetworks: who comes from elsewhere gets nothing, also with the token.
func TestAdminNetworks(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	for networks, want := range map[string]int{"10.0.0.0/8,2001:db8::1": 403, "10.0.0.0/8,127.0.0.0/8": 200} {
		t.Setenv("HEADGATE_ADMIN_NETWORKS", networks)
		r := startServe(t)
		if code := sendAdmin(r, "GET", "/admin/status", ""); code != want {
			t.Errorf("%s: %d, want %d", networks, code, want)
		}
	}
}

// TestAdminSettingsThatCannotBe are errors at the start, which do not tell secrets.
func TestAdminSettingsThatCannotBe(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(broken, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	jwt := []string{"--admin-jwt-issuer", "i", "--admin-jwt-audience", "a"}
	for _, c := range []struct {
		env, says string
		flags     []string
	}{
		{"", `--admin-networks: "10.0.0.0/33" is neither a network`, []string{"--admin-networks", "10.0.0.0/33"}},
		{"", `"10.0.0.1/8" has bits behind its length; did you mean 10.0.0.0/8?`, []string{"--admin-networks", "10.0.0.1/8"}},
		{"", `write it as IPv4`, []string{"--admin-networks", "::ffff:10.0.0.0/104"}},
		{"", `"intranet" is neither`, []string{"--admin-networks", "intranet"}},
		{"", "needs --admin-jwt-issuer and --admin-jwt-audience", []string{"--admin-jwks", broken}},
		{"", "--admin-jwt-audience: needs --admin-jwks", []string{"--admin-jwt-audience", "x"}},
		{"", "--admin-jwks: must begin with https://", append([]string{"--admin-jwks", "http://idp.example/keys"}, jwt...)},
		{"", "no public key", append([]string{"--admin-jwks", broken}, jwt...)},
		{"", "no such file", append([]string{"--admin-jwks", broken + "x"}, jwt...)},
		{"", "--admin-jwt-leeway: 1h0m0s is more than 5m0s", []string{"--admin-jwt-leeway", "1h"}},
		{"HEADGATE_ADMIN_TOKEN_OPS=geheim", "environment variable HEADGATE_ADMIN_TOKEN_OPS: has 6 characters", nil},
		{"HEADGATE_ADMIN_TOKEN_OPS=", "HEADGATE_ADMIN_TOKEN_OPS: must not be empty", nil},
		{"HEADGATE_ADMIN_TOKEN_=geheim-geheim-geheim", "no name of a token", nil},
		{"HEADGATE_ADMIN_TOKEN_ops=geheim-geheim-geheim", "capital letters", nil},
		{"HEADGATE_ADMIN_TOKEN_FILE=/run/secrets/geheim-token", "tokens are not read from files", nil},
		{"HEADGATE_ADMIN_TOKEN_OPS=" + adminToken, "admin-token and token:ops are the same token", nil},
	} {
		t.Run(c.says, func(t *testing.T) {
			t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			if got := startError(t, c.flags...); !strings.Contains(got, c.says) || strings.Contains(got, "geheim") ||
				strings.Contains(got, adminToken) {
				t.Errorf("%s, want %q", got, c.says)
			}
		})
	}
}

// TestEveryAdminPathIsGuarded: without the token no path answers, whichever part has it; with it each does.
func TestEveryAdminPathIsGuarded(t *testing.T) {
	testenv.UseSQLite(t)
	dir := t.TempDir()
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	r := startServe(t, "--policies", "sqlite:"+filepath.Join(dir, "policies.db"),
		"--slots", "sqlite:"+filepath.Join(dir, "slots.db"), "--candidate", dir, "--example")
	paths := []string{"policies", "policies-history", "candidate", "capture?for=1s", "rate-limit/config", "openapi.json",
		"status", "metrics", "coverage", "reloads", "top", "explain", "rules", "recent", "reset", "", "unknown"}
	for _, path := range paths {
		if code, answer := r.Get(r.HTTP, "/admin/"+path); code != 401 {
			t.Errorf("%s without the token: %d %s", path, code, answer)
		}
		if code := sendAdmin(r, "GET", "/admin/"+path, ""); code == 401 {
			t.Errorf("%s with the token: %d", path, code)
		}
	}
}
