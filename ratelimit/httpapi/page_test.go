package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
)

// openPage opens a page of a server in a browser. others answers what else the page asks; nil: 404.
func openPage(t *testing.T, s *server, path string, others http.Handler) *testenv.Page {
	t.Helper()
	testenv.Require(t, testenv.Chromium)
	mux := http.NewServeMux()
	mux.Handle("/admin/", s.handler)
	mux.Handle("/", Page())
	if others != nil {
		mux.Handle("/admin/policies", others)
		mux.Handle("/admin/policies/", others)
		mux.Handle("/admin/policies-history", others)
	}
	live := httptest.NewServer(mux)
	t.Cleanup(live.Close)
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(1280, 900, false)
	p.ColorScheme("light")
	p.Navigate(live.URL + path)
	return p
}

const (
	asks    = `!document.querySelector("#login-part").hidden`
	isHome  = `!document.querySelector("#overview").hidden`
	isTree  = `!document.querySelector("#limits").hidden`
	tooWide = `document.documentElement.scrollWidth - document.documentElement.clientWidth`
)

func signIn(p *testenv.Page) {
	p.Wait(asks)
	p.Eval(fmt.Sprintf(`document.querySelector("#token").value = %q; document.querySelector("#login").requestSubmit()`,
		adminToken))
}

func click(p *testenv.Page, selector string) {
	p.Eval(fmt.Sprintf(`document.querySelector(%q).click()`, selector))
}

// contains waits until an element has a text.
func contains(p *testenv.Page, selector, text string) {
	p.Wait(fmt.Sprintf(`document.querySelector(%q).textContent.includes(%q)`, selector, text))
}

// keep writes a screenshot to the directory of HEADGATE_SCREENSHOTS, if there is one.
func keep(t *testing.T, p *testenv.Page, name string) []byte {
	t.Helper()
	shot := p.Screenshot()
	if dir := os.Getenv("HEADGATE_SCREENSHOTS"); dir != "" {
		must(t, os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644))
	}
	return shot
}

// TestPageShowsAFlood within five seconds, on both pages, and explains the key.
func TestPageShowsAFlood(t *testing.T) {
	s := newServer(t, "memory://")
	s.parts = []web.Part{{Name: "backend redis", Detail: "answered a ping in 0.2ms"},
		{Name: "certificates", Problem: "server.pem expired", Serving: true}}
	p := openPage(t, s, "/", nil)
	signIn(p)
	p.Wait(isHome)
	contains(p, "#next-part", "headgate ask example client=alice")
	contains(p, "#parts", "server.pem expired")
	keep(t, p, "overview-empty")

	s.take(t, "shop|user=noisy", 250)
	s.take(t, "shop|usr=x", 3)
	began := time.Now()
	contains(p, "#five", "shop|user=noisy")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the flood is shown after %v", took)
	}
	contains(p, "#shapes", `did you mean "user"?`)
	p.Wait(`document.querySelector("#next-part").hidden`)
	light := keep(t, p, "overview")

	click(p, "#five td button")
	p.Wait(isTree)
	if got := p.Text(`location.pathname`); got != "/limits" {
		t.Errorf("a key leads to %s", got)
	}
	contains(p, "#one-title", "shop|user=noisy")
	contains(p, "#verdict", "would be refused")
	contains(p, "#one-rule", "Rule shop/user (rules.yaml:3)")
	contains(p, "#refusals", "by shop/user, cause limit, retry ")
	contains(p, "#refused-keys", "240")
	contains(p, "#rules", "hourly token_bucket 100/1h burst 20")
	tree := func(want string) {
		t.Helper()
		if got := p.Text(`[...document.querySelectorAll("#rules .step, #rules .figures")].filter((e) => ` +
			`e.checkVisibility()).map((e) => (e.className === "step" ? "\n" + document.evaluate("count(ancestor::ul)", e).` +
			`numberValue + " " : " | ") + e.textContent).join("")`); got != want {
			t.Errorf("the tree is%s\nwant%s", got, want)
		}
	}
	const plan = " | hourly token_bucket 100/1h burst 20 | daily 30/24h"
	const open = "\n1 shop\n2 user | 10/1h, or policy user:{user}\n2 plan" + plan + "\n2 model | 2 in flight\n2 free | " +
		"unlimited\n2 v1.2\n3 path_/pay | 3/24h\n3 path_/get | 4/24h\n2 GET:/v1/pay | 7/1h"
	tree(open)
	if got := p.Text(`document.querySelector("#rules .bar").title`); got != "100 % used" {
		t.Errorf("the bar of the tree says %s", got)
	}
	p.Eval(`document.querySelectorAll("#rules summary")[1].click(); ` +
		`window.drawn = document.querySelector("#rules").firstChild; undefined`)
	p.Wait(`window.drawn !== document.querySelector("#rules").firstChild`)
	tree(strings.Replace(open, plan, "", 1))
	p.Eval(`document.querySelector("#rules-title").scrollIntoView(); undefined`)
	keep(t, p, "rules")
	p.Eval(`scrollTo(0, 0)`)
	keep(t, p, "limits")
	p.ColorScheme("dark")
	dark := keep(t, p, "limits-dark")
	if l, d := webtest.Brightness(t, light), webtest.Brightness(t, dark); l < 200 || d > 80 {
		t.Errorf("the mean brightness is %d in light and %d in dark", l, d)
	}
	if got := p.Text(`[...document.querySelectorAll("button, input, select")].filter(e => !(e.textContent.trim() || ` +
		`e.ariaLabel || e.labels?.length)).length`); got != "0" {
		t.Errorf("%s fields have no name", got)
	}

	before := s.take(t, "shop|user=noisy", 1)
	click(p, "#reset")
	contains(p, "#reset", "Reset for good")
	if passed := s.take(t, "shop|user=noisy", 1); before != 0 || passed != 0 {
		t.Error("one click has reset the counters")
	}
	click(p, "#reset")
	contains(p, "#done", "The counters are reset.")
	contains(p, "#verdict", "would pass")
	p.Eval(`document.body.focus(); document.activeElement.blur(); ` +
		`document.dispatchEvent(new KeyboardEvent("keydown", {key: "/"}))`)
	if got := p.Text(`document.activeElement.id`); got != "about" {
		t.Errorf("the key / leads to %q", got)
	}
}

// TestPageExplainsARequest by its id, and says if it is not known.
func TestPageExplainsARequest(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=alice", 10)
	s.refuse(t, "shop|user=alice", "8f3b")
	p := openPage(t, s, "/limits#token="+adminToken, nil)
	p.Wait(isTree)
	if got := p.Text(`location.href.includes("token") + JSON.stringify({...localStorage, ...sessionStorage}) + ` +
		`document.cookie`); got != "false{}" {
		t.Errorf("the token stays: %s", got)
	}
	find := func(about string) {
		p.Eval(fmt.Sprintf(`document.querySelector("#about").value = %q; document.querySelector("#find").requestSubmit()`,
			about))
	}
	find("8f3b")
	contains(p, "#refusals", "request 8f3b")
	find("unknown")
	contains(p, "#alert", "no refusal of the request unknown")
}

// TestPageShowsHostileNamesAsText: no key, rule or request id is markup, and nothing is wider than a narrow phone.
func TestPageShowsHostileNamesAsText(t *testing.T) {
	s := newServer(t, "memory://")
	const markup = `"><img src=x onerror=alert(1)><b>eve</b>`
	for _, value := range []string{markup, strings.Repeat("W", 2000), "\xff\xfe"} {
		for i := range 13 {
			req := &ratelimit.Request{Domain: "shop", RequestID: markup + fmt.Sprint(i), Descriptors: []ratelimit.Descriptor{{
				Entries: []descriptors.Entry{{Key: "user", Value: value}}}}}
			s.service.Decide(t.Context(), []*ratelimit.Request{req}, []*ratelimit.Response{new(ratelimit.Response)})
		}
	}
	s.take(t, "shop|%3Ci%3Ekey%3C/i%3E=x", 1)
	p := openPage(t, s, "/#token="+adminToken, nil)
	p.Viewport(360, 740, true)
	p.Wait(isHome)
	contains(p, "#five", "<img%20src=x%20onerror=alert(1)><b>eve</b>")
	contains(p, "#shapes", "<i>key</i>")
	keep(t, p, "overview-phone")
	if got := p.Text(tooWide); got != "0" {
		t.Errorf("the overview is %s px wider than the phone", got)
	}
	p.Eval(`[...document.querySelectorAll("#five button")].find((b) => b.textContent.includes("img")).click()`)
	contains(p, "#refusals", "request "+markup)
	keep(t, p, "limits-phone")
	if got := p.Text(tooWide); got != "0" {
		t.Errorf("the limits are %s px wider than the phone", got)
	}
	if got := p.Text(`document.querySelectorAll("main img, main b, main i").length`); got != "0" {
		t.Errorf("%s elements come from names", got)
	}
}

// TestPageSaysWhatItCannotKnow: while the store is away, and while the service is.
func TestPageSaysWhatItCannotKnow(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=noisy", 15)
	s.fail = backends.ErrUnavailable
	p := openPage(t, s, "/limits#token="+adminToken, nil)
	p.Wait(isTree)
	contains(p, "#seen", "used and left are not known")
	contains(p, "#refused-keys", "shop|user=noisy")
	click(p, "#refused-keys td button")
	contains(p, "#verdict", "Not known; while the store fails, the rule says: allow")
}

// TestPageWithoutAnAdminAPI says so, and asks for no token.
func TestPageWithoutAnAdminAPI(t *testing.T) {
	s := newServer(t, "memory://")
	guard, err := web.NewGuard(web.GuardConfig{})
	must(t, err)
	s.handler = guard.Wrap(http.NotFoundHandler())
	p := openPage(t, s, "/", nil)
	contains(p, "#alert", "the admin API is disabled: set HEADGATE_ADMIN_TOKEN")
	if p.Text(asks) != "false" {
		t.Error("it asks for a token that does not exist")
	}
}

// TestPageRunsOnlyItsOwnScripts: the pages may run what they are served with, and nothing else.
func TestPageRunsOnlyItsOwnScripts(t *testing.T) {
	get := func(target string) webtest.Answer { return webtest.Send(t, t.Context(), Page(), "GET", target, "") }
	for target, kind := range map[string]string{"/": "text/html", "/limits": "text/html",
		"/limits/app.js":  "text/javascript",
		"/limits/look.js": "text/javascript", "/limits/look.css": "text/css", "/limits/forms.css": "text/css",
		"/limits/app.css": "text/css", "/limits/icon.svg": "image/svg"} {
		a := get(target).Is(t, 200)
		policy := a.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(a.Header.Get("Content-Type"), kind) || !strings.Contains(policy, "default-src 'none'") ||
			strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %v", target, a.Header)
		}
	}
	for _, bad := range []string{"http:", "https:", "//", "style=", "onclick", "<style"} {
		if strings.Contains(get("/").Body, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	get("/other").Is(t, 404)
}
