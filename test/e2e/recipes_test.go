package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A recipe of docs/recipes.md is played behind Envoy. All are rules of one service, and have listeners of one Envoy.
type recipe struct {
	domain string
	play   func(f *front, k *kitchen)
	// rules and envoy are parts of the rules, and of the configuration that headgate envoy prints, and what takes their
	// place: what the page leaves to its reader.
	rules, envoy []string
	newest       bool // it needs an Envoy from 1.38 on
}

var recipes = []recipe{
	{domain: "login", play: playLogin, rules: []string{"10.0.0.0/8", "127.0.9.0/24"}}, // where the test is
	{domain: "claims", play: playClaims},
	{domain: "plans", play: playPlans},
	{domain: "methods", play: playMethods},
	{domain: "ids", play: playIDs},
	{domain: "midnight", play: playMidnight},
	{domain: "money", play: playMoney,
		envoy: []string{"- actions:", "- hits_addend: {format: '%REQ(x-cents)%'}\n                              actions:"}},
	{domain: "both", play: playBoth},
	{domain: "rollout", play: playRollout},
	{domain: "headers", play: playHeaders, newest: true,
		envoy: []string{"- actions:\n                                - {generic_key", "- x_ratelimit_option: 'OFF'\n" +
			"                              actions:\n                                - {generic_key"}},
	{domain: "nginx", play: playBucket(21, "x-any", "a")},
	{domain: "kong", play: playKong},
	{domain: "spring", play: playBucket(20, "x-user", "u")},
	{domain: "istio", play: playBucket(10, "x-any", "a")},
}

// A kitchen is where recipes are played.
type kitchen struct {
	t          *testing.T
	s          *service
	live, next string // directories of rules
	pages      map[string]string
	issuer     *ecdsa.PrivateKey
}

const kitchenToken = "only-for-this-test-of-recipes"

// block finds the blocks of the page.
var block = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestRecipes: each recipe of the page does what it says.
func TestRecipes(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		k := &kitchen{t: t, live: t.TempDir(), next: t.TempDir(), pages: map[string]string{}}
		k.read()
		k.s = startService(t, "--rules", k.live, "--candidate", k.next, "--admin-token", kitchenToken)
		e := testenv.StartEnvoy(t, env.envoy, k.envoy(env.envoy))
		for _, r := range recipes {
			t.Run(r.domain, func(t *testing.T) {
				if r.newest && env.envoy != envoyVersions[0] {
					t.Skip("this Envoy is too old for it")
				}
				insideMinute()
				r.play(frontAt(t, e, r.domain), k)
			})
		}
	})
}

// insideMinute waits if the minute, and with it most windows of the recipes, would end during one.
func insideMinute() {
	const most = 3 * time.Second
	if left := time.Minute - time.Duration(time.Now().UnixNano())%time.Minute; left < most {
		time.Sleep(left)
	}
}

// read writes the rules of the page into the directories: those of rollout without shadow_mode are on trial.
func (k *kitchen) read() {
	k.t.Helper()
	for _, m := range block.FindAllStringSubmatch(readSource(k.t, "docs/recipes.md"), -1) {
		name, _, _ := strings.Cut(m[1], "\n")
		k.pages[strings.TrimPrefix(name, "domain: ")] = m[1]
	}
	for _, r := range recipes {
		if k.pages[r.domain] == "" {
			k.t.Fatalf("the page has no recipe for %s", r.domain)
		}
		k.write(k.live, r.domain, substitute(k.t, k.pages[r.domain], r.rules...))
	}
	for page := range k.pages {
		if !slices.ContainsFunc(recipes, func(r recipe) bool { return r.domain == page }) && strings.Contains(k.pages[page],
			"domain: ") {
			k.t.Errorf("no test plays the recipe %s", page)
		}
	}
	k.write(k.next, "rollout", k.enforced())
}

func (k *kitchen) write(dir, domain, text string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, domain+".yaml"), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// enforced are the rules of the rollout without shadow_mode.
func (k *kitchen) enforced() string {
	return substitute(k.t, k.pages["rollout"], "    shadow_mode: true\n", "")
}

// envoy makes one configuration of those that headgate envoy prints for the domains, with a listener for each.
func (k *kitchen) envoy(version string) string {
	k.t.Helper()
	var all map[string]any
	app := startApplication(k.t)
	for _, r := range recipes {
		if r.newest && version != envoyVersions[0] {
			continue
		}
		made := command(k.t, nil, "envoy", filepath.Join(k.live, r.domain+".yaml"), "--envoy-version", version, "--listen",
			"0", "--admin", "127.0.0.1:0", "--upstream", app, "--timeout", "10s", "--deny-without-answer", "--address", k.s.GRPC)
		if made.code != 0 {
			k.t.Fatalf("headgate envoy: %v", made)
		}
		text := substitute(k.t, made.out, r.envoy...)
		if r.domain == "claims" {
			text = substitute(k.t, text, "http_filters:\n", "http_filters:\n"+indent(k.reads(), 18))
		}
		var one map[string]any
		if err := yaml.Unmarshal([]byte(text), &one); err != nil {
			k.t.Fatalf("%v:\n%s", err, text)
		}
		listener := listenersOf(one)[0].(map[string]any)
		listener["name"] = r.domain
		if all == nil {
			all = one
			continue
		}
		all["static_resources"].(map[string]any)["listeners"] = append(listenersOf(all), listener)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		k.t.Fatal(err)
	}
	return string(text)
}

func listenersOf(config map[string]any) []any {
	return config["static_resources"].(map[string]any)["listeners"].([]any)
}

var base64url = base64.RawURLEncoding.EncodeToString

// reads is the filter of the page that reads tokens, with the keys of an issuer of the test.
func (k *kitchen) reads() string {
	var err error
	if k.issuer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		k.t.Fatal(err)
	}
	point, err := k.issuer.PublicKey.Bytes() // 4, x, y
	if err != nil {
		k.t.Fatal(err)
	}
	keys := fmt.Sprintf(`{"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "x": %q, "y": %q}]}`,
		base64url(point[1:33]), base64url(point[33:]))
	return substitute(k.t, k.pages["- name: envoy.filters.http.jwt_authn"], "{filename: /etc/envoy/jwks.json}",
		"{inline_string: '"+keys+"'}")
}

// token is a token of a subject.
func (k *kitchen) token(subject string) string {
	k.t.Helper()
	text := base64url([]byte(`{"alg":"ES256"}`)) + "." +
		base64url(fmt.Appendf(nil, `{"iss":"https://issuer.example","sub":%q}`, subject))
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, k.issuer, sum[:])
	if err != nil {
		k.t.Fatal(err)
	}
	return "Bearer " + text + "." + base64url(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// wantSent checks a row of answers to requests of a client.
func (f *front) wantSent(want, client, method, target string, headers ...string) {
	f.t.Helper()
	var got []string
	for range strings.Fields(want) {
		got = append(got, fmt.Sprint(f.send(client, method, target, headers...)))
	}
	if text := strings.Join(got, " "); text != want {
		f.t.Errorf("%s %s of %s %v: answers %s, want %s", method, target, client, headers, text, want)
	}
}

func playLogin(f *front, _ *kitchen) {
	f.wantSent("200 200 200 200 200 429", "127.0.1.1", "POST", "/login")
	f.wantSent("429", "127.0.1.1", "POST", "/LOGIN/")
	f.wantSent("200", "127.0.1.2", "POST", "/login/")
	f.wantSent(codes(8, 200), "127.0.9.1", "POST", "/login")
	f.wantSent(codes(8, 200), "127.0.1.1", "GET", "/login")
}

func playClaims(f *front, k *kitchen) {
	alice := k.token("alice")
	f.WantCodes("200 200 200 200 200 429", "/", "authorization", alice)
	f.WantCodes("200", "/", "authorization", k.token("bob"))
	f.WantCodes("401", "/", "authorization", alice[:len(alice)-4]+"AAAA")
	f.WantCodes("429", "/other", "authorization", k.token("alice"))
}

func playPlans(f *front, _ *kitchen) {
	f.WantCodes("200 200 200 429", "/", "x-api-key", "silver")
	f.WantCodes("200 200 200 429", "/", "x-api-key", "gold-3")
	f.WantCodes("200 200 200 200 200 200 429", "/", "x-api-key", "gold-1")
	f.WantCodes("200 200 200 200 200 200 429", "/", "x-api-key", "gold-2")
	f.WantCodes("200 200 200 429", "/")
}

func playMethods(f *front, _ *kitchen) {
	f.wantSent("200 200 429", "127.0.2.1", "POST", "/orders")
	f.wantSent("200 200 200 200 200 200 429", "127.0.2.1", "GET", "/orders")
	f.wantSent("200 200 429", "127.0.2.2", "POST", "/orders")
	f.wantSent(codes(9, 200), "127.0.2.2", "DELETE", "/orders")
}

func playIDs(f *front, _ *kitchen) {
	f.WantCodes("200 200 200 429", "/users/7/avatar")
	f.WantCodes("429", "/users/%37/avatar?size=1")
	f.WantCodes("200 200 200 429", "/users/8/avatar")
	f.WantCodes(codes(6, 200), "/users/7")
}

// untilMidnight is how many seconds a day in Berlin has left, or with month its month.
func untilMidnight(t *testing.T, month bool) int {
	t.Helper()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().In(berlin)
	end := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, berlin)
	if month {
		end = time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, berlin)
	}
	return int(end.Sub(now) / time.Second)
}

func playMidnight(f *front, _ *kitchen) {
	f.WantCodes("200 200", "/", "x-api-key", "a")
	left := untilMidnight(f.t, false)
	wantSeconds(f.t, f.Get("/", "x-api-key", "a"), "x-ratelimit-reset", left-5, left+2)
	f.WantCodes("429", "/", "x-api-key", "a")
}

func playMoney(f *front, _ *kitchen) {
	f.WantCodes("200", "/charge", "x-api-key", "a", "x-cents", "6000")
	f.WantCodes("429", "/charge", "x-api-key", "a", "x-cents", "4001")
	left := untilMidnight(f.t, true)
	wantSeconds(f.t, f.Get("/charge", "x-api-key", "a", "x-cents", "4000"), "x-ratelimit-reset", left-5, left+2)
	f.WantCodes("429", "/charge", "x-api-key", "a", "x-cents", "1")
	f.WantCodes("200", "/charge", "x-api-key", "b", "x-cents", "10000")
}

// playBoth spends a day, four requests a second.
func playBoth(f *front, _ *kitchen) {
	passed, refused := 0, map[string]bool{}
	testenv.Eventually(f.t, 20*time.Second, "be refused by the limit per day", func() string {
		a := f.Get("/", "x-api-key", "a")
		if a.Code == http.StatusOK {
			passed++
		} else {
			refused[a.Rule()] = true
		}
		if refused["both/*:/*:day"] {
			return ""
		}
		return fmt.Sprint(passed, refused)
	})
	if passed != 8 || !refused["both/*:/*:second"] {
		f.t.Errorf("%d requests pass, want 8; refused by %v", passed, refused)
	}
}

// playRollout goes the whole way from shadow to refusals.
func playRollout(f *front, k *kitchen) {
	f.wantSent(codes(6, 200), "127.0.4.1", "GET", "/")
	if n := k.s.Metric("headgate_decisions_total", `outcome="shadow_over_limit"`, `domain="rollout"`); n < 3 {
		f.t.Errorf("%v requests would be refused", n)
	}
	testenv.Eventually(f.t, 10*time.Second, "have the trial refuse", func() string {
		said := command(f.t, []string{"HEADGATE_ADMIN_TOKEN=" + kitchenToken}, "diff", "--addr", k.s.HTTP, "--format", "json")
		var diff struct {
			Refused int `json:"refused_new"`
		}
		if err := json.Unmarshal([]byte(said.out), &diff); err != nil || diff.Refused < 3 {
			return said.String()
		}
		return ""
	})
	k.write(k.live, "rollout", k.enforced())
	testenv.Eventually(f.t, 20*time.Second, "enforce the limit", func() string {
		if code := f.send("127.0.4.1", "GET", "/"); code != http.StatusTooManyRequests {
			return strconv.Itoa(code)
		}
		return ""
	})
}

func playHeaders(f *front, _ *kitchen) {
	for _, left := range []string{"4", "3"} {
		a := f.Get("/")
		wantHeader(f.t, a, "x-ratelimit-limit", "5, 5;w=60")
		wantHeader(f.t, a, "x-ratelimit-remaining", left)
	}
	f.wantSent(codes(5, 200), "127.0.6.1", "GET", "/")
	if a := f.Get("/"); a.Code != http.StatusOK || a.Remaining() != -1 { // all together have 1 left, this client 2
		f.t.Errorf("the shared limit is shown: %v", a)
	}
	f.wantSent("200 429", "127.0.6.2", "GET", "/")
}

func playKong(f *front, _ *kitchen) {
	f.WantCodes("200 200 200 200 200 429", "/", "x-api-key", "a")
	f.WantCodes("200", "/", "x-api-key", "b")
}

// playBucket sends more requests at once than a bucket holds, which gets back at most 10 a second.
func playBucket(holds int, header, value string) func(*front, *kitchen) {
	return func(f *front, _ *kitchen) {
		start := time.Now()
		row := strings.Fields(f.Codes(holds+15, "/", header, value))
		most := holds + int(time.Since(start)*10/time.Second) + 1
		passed := 0
		for i, code := range row {
			if code == "200" {
				passed++
			} else if i < holds {
				f.t.Errorf("request %d is answered %s", i+1, code)
			}
		}
		if passed > most {
			f.t.Errorf("%d requests pass, want %d to %d", passed, holds, most)
		}
	}
}
