package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
)

// open returns the page of a server, signed in.
func open(t *testing.T, s *server) *testenv.Page {
	t.Helper()
	p := openUnsigned(t, s)
	signIn(p, adminToken)
	p.Wait(isShown)
	return p
}

func openUnsigned(t *testing.T, s *server) *testenv.Page {
	t.Helper()
	testenv.Require(t, testenv.Chromium)
	mux := http.NewServeMux()
	mux.Handle("/admin/", s.handler)
	mux.Handle("/", Page())
	live := httptest.NewServer(mux)
	t.Cleanup(live.Close)
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(1280, 900, false)
	p.ColorScheme("light")
	p.Navigate(live.URL + "/policies")
	p.Wait(`!document.querySelector("#login-part").hidden`)
	return p
}

func signIn(p *testenv.Page, token string) {
	p.Eval(fmt.Sprintf(`document.querySelector("#token").value = %q; document.querySelector("#login").requestSubmit()`,
		token))
}

// set types into a field of the editor, as a person does.
func set(p *testenv.Page, field, value string) {
	p.Eval(fmt.Sprintf(`{ const f = document.querySelector("#%s"); f.value = %q; f.dispatchEvent(new Event("input", `+
		`{bubbles: true})) }`, field, value))
}

func click(p *testenv.Page, selector string) {
	p.Eval(fmt.Sprintf(`document.querySelector(%q).click()`, selector))
}

// says waits until the preview has a text.
func says(p *testenv.Page, text string) {
	p.Wait(fmt.Sprintf(`document.querySelector("#preview").textContent.includes(%q)`, text))
}

const (
	isShown  = `!document.querySelector("#list-part").hidden && document.querySelector("#state").textContent !== "Loading"`
	isClosed = `!document.querySelector("#editor").open`
	canSave  = `!document.querySelector("#save").disabled`
	shown    = `document.querySelectorAll("#rows tr").length`
	entries  = `document.querySelectorAll("#past li").length`
	tooWide  = `document.documentElement.scrollWidth - document.documentElement.clientWidth`
)

// keep writes a screenshot to the directory of HEADGATE_SCREENSHOTS, if there is one.
func keep(t *testing.T, p *testenv.Page, name string) []byte {
	t.Helper()
	shot := p.Screenshot()
	if dir := os.Getenv("HEADGATE_SCREENSHOTS"); dir != "" {
		check(t, os.WriteFile(filepath.Join(dir, "policies-"+name+".png"), shot, 0o644))
	}
	return shot
}

// TestPageSearchesAndChangesPolicies: what a person does on the page is what the API has afterwards, and the
// preview says it before.
func TestPageSearchesAndChangesPolicies(t *testing.T) {
	s := newServer(t)
	s.put(t, "user:alice", "user:bob", "key:x")
	p := open(t, s)
	p.Wait(shown + " === 3")
	light := keep(t, p, "light")

	p.Eval(`document.dispatchEvent(new KeyboardEvent("keydown", {key: "/"}))`)
	if got := p.Text(`document.activeElement.id`); got != "prefix" {
		t.Errorf("the key / leads to %q", got)
	}
	set(p, "prefix", "user:")
	p.Wait(shown + " === 2")
	if got := p.Text(`document.querySelector("#rows tr").textContent`); !strings.Contains(got,
		"user:alice2 in any 1 min") {
		t.Errorf("the first row is %q", got)
	}

	click(p, "#rows button")
	says(p, "Then: 2 in any 1 min.")
	set(p, "limit", "5")
	says(p, "Then: 5 in any 1 min.")
	says(p, "nothing is given at once")
	p.Wait(canSave)
	keep(t, p, "editor")
	if before := s.do(t, "GET", "/admin/policies/user:alice", "").Is(t, 200); !strings.Contains(before.Body,
		`"capacity":2`) {
		t.Errorf("a preview has changed something: %s", before.Body)
	}
	click(p, "#save")
	p.Wait(isClosed)
	s.do(t, "GET", "/admin/policies/user:alice", "").Is(t, 200).Has(t, `"capacity":5`).Has(t, `"changedBy":"admin-token"`)
	p.Wait(`document.querySelector("#rows tr").textContent.includes("5 in any 1 min (sliding_log 5/1m)")`)

	click(p, "#new")
	set(p, "key", "user:%zz")
	says(p, "The server says")
	set(p, "key", "user:carol")
	set(p, "rate", "1/2s")
	says(p, "Then: 100 at once, and 0.5 per second after that.")
	p.Wait(canSave)
	click(p, "#save")
	p.Wait(isClosed)
	p.Wait(shown + " === 3")
	s.do(t, "GET", "/admin/policies/user:carol", "").Is(t, 200).Has(t, `"refillRate":0.5`)

	click(p, "#rows tr:nth-child(2) button")
	p.Wait(`document.querySelector("#editor").open && document.querySelector("#key").value === "user:bob"`)
	says(p, "Then: ")
	click(p, "#remove")
	says(p, "Without this policy")
	s.do(t, "GET", "/admin/policies/user:bob", "").Is(t, 200)
	click(p, "#remove")
	p.Wait(isClosed)
	p.Wait(shown + " === 2")
	s.do(t, "GET", "/admin/policies/user:bob", "").Is(t, 404)

	p.ColorScheme("dark")
	if l, d := webtest.Brightness(t, light), webtest.Brightness(t, keep(t, p, "dark")); l < 200 || d > 80 {
		t.Errorf("the mean brightness is %d in light and %d in dark", l, d)
	}
	if got := p.Text(`[...document.querySelectorAll("button, input, select")].filter(e => !(e.textContent.trim() || ` +
		`e.ariaLabel || e.labels.length)).length`); got != "0" {
		t.Errorf("%s fields have no name", got)
	}
}

// TestPageWithoutATokenShowsNothing: it asks for the token, and again if that is wrong.
func TestPageWithoutATokenShowsNothing(t *testing.T) {
	s := newServer(t)
	s.put(t, "user:alice")
	p := openUnsigned(t, s)
	if got := p.Text(shown); got != "0" {
		t.Errorf("%s policies are shown", got)
	}
	signIn(p, "wrong-token-wrong-token")
	p.Wait(`document.querySelector("#alert").textContent.includes("needs the token")`)
	keep(t, p, "login")
	signIn(p, adminToken)
	p.Wait(shown + " === 1")
	if got := p.Text(`String(document.querySelector("#alert").hidden) + JSON.stringify({...localStorage, ` +
		`...sessionStorage}) + document.cookie`); got != "true{}" {
		t.Errorf("after the sign-in: %s", got)
	}
}

// TestPageSaysWhoWasFaster: a change of what somebody else has changed meanwhile is not made.
func TestPageSaysWhoWasFaster(t *testing.T) {
	s := newServer(t)
	s.put(t, "user:alice")
	p := open(t, s)
	click(p, "#rows button")
	p.Wait(canSave)
	s.do(t, "PUT", "/admin/policies/user:alice", `{"type":"FIXED_WINDOW","capacity":7,"windowSeconds":1}`).Is(t, 200)
	click(p, "#save")
	says(p, "Somebody has changed this policy meanwhile")
	s.do(t, "GET", "/admin/policies/user:alice", "").Is(t, 200).Has(t, `"capacity":7`)
}

// TestPageShowsHistoryAndRestores: who has changed a policy, from what to what, and back as it was, also after
// it was deleted. Texts from elsewhere stay texts.
func TestPageShowsHistoryAndRestores(t *testing.T) {
	s := newServer(t)
	s.put(t, "user:alice", "user:bob")
	f := policies.Figures{Algorithm: limit.SlidingLog, Capacity: 5000, Window: 60 * policies.One}
	_, err := s.store.Apply(soon(t), []table.Edit{{Key: "user:alice", Figures: f}},
		"shell:<img src=x onerror=alert(1)><b>eve</b>", 0, false)
	check(t, err)
	p := open(t, s)
	p.Wait(shown + " === 2")
	click(p, "#rows button")
	p.Wait(entries + " === 2")
	first := p.Text(`document.querySelector("#past li").innerText.replace(/\s+/g, " ")`)
	if want := "UTC by shell:<img src=x onerror=alert(1)><b>eve</b> Before sliding_log limit 2 window 1m Restore these " +
		"numbers After sliding_log limit 5,000 window 1m"; !strings.HasSuffix(first, want) {
		t.Errorf("the newest change is %q, want %q", first, want)
	}
	if got := p.Text(`[...document.querySelectorAll("#past mark")].map(e => e.textContent).join()`); got !=
		"limit 2,limit 5,000" {
		t.Errorf("what is marked is %q", got)
	}
	if got := p.Text(`document.querySelectorAll("#past img, #past b").length`); got != "0" {
		t.Errorf("%s elements come from the name of who has changed it", got)
	}
	if got := p.Text(`document.querySelector("#past li:last-child").innerText.includes("no policy")`); got != "true" {
		t.Error("the oldest change does not say that there was no policy")
	}

	// By keyboard: the next stop after Save is what restores.
	says(p, "Then: 5,000 in any 1 min.")
	p.Wait(canSave)
	p.Eval(`document.querySelector("#save").focus()`)
	p.Press("Tab")
	if got := p.Text(`document.activeElement.ariaLabel`); got != "Restore these numbers: sliding_log, limit 2, window 1m" {
		t.Fatalf("after Save comes %q", got)
	}
	p.Press("Enter")
	says(p, "Then: 2 in any 1 min.")
	keep(t, p, "history")
	s.do(t, "GET", "/admin/policies/user:alice", "").Is(t, 200).Has(t, `"capacity":5000`)
	p.Wait(canSave)
	click(p, "#save")
	p.Wait(isClosed)
	s.do(t, "GET", "/admin/policies/user:alice", "").Is(t, 200).Has(t,
		`"capacity":2,"refillRate":0,"windowSeconds":60,"version":3,"changedBy":"admin-token"`)

	s.do(t, "DELETE", "/admin/policies/user:alice", "").Is(t, 204)
	set(p, "prefix", "user:alice")
	p.Wait(`document.querySelector("#none").textContent.includes("also of a deleted policy")`)
	click(p, "#new")
	p.Wait(entries + " === 4")
	set(p, "key", "user:alic")
	p.Wait(entries + ` === 0 && document.querySelector("#past-part").hidden`)
	set(p, "key", "user:alice")
	p.Wait(entries + " === 4")
	click(p, "#past button")
	says(p, "Then: 2 in any 1 min.")
	p.Wait(canSave)
	p.ColorScheme("dark")
	keep(t, p, "history-dark")
	click(p, "#save")
	p.Wait(isClosed)
	s.do(t, "GET", "/admin/policies/user:alice", "").Is(t, 200).Has(t,
		`"capacity":2,"refillRate":0,"windowSeconds":60,"version":1`)
}

// TestPageRestoresOnlyWhatNobodyHasChanged meanwhile.
func TestPageRestoresOnlyWhatNobodyHasChanged(t *testing.T) {
	s := newServer(t)
	s.put(t, "user:alice")
	s.do(t, "PUT", "/admin/policies/user:alice", `{"type":"TOKEN_BUCKET","capacity":7,"refillRate":1}`).Is(t, 200)
	p := open(t, s)
	click(p, "#rows button")
	p.Wait(entries + " === 2")
	click(p, "#past button")
	says(p, "Then: 2 in any 1 min.")
	p.Wait(canSave)
	s.do(t, "PUT", "/admin/policies/user:alice", `{"type":"TOKEN_BUCKET","capacity":8,"refillRate":1}`).Is(t, 200)
	click(p, "#save")
	says(p, "Somebody has changed this policy meanwhile")
	s.do(t, "GET", "/admin/policies/user:alice", "").Is(t, 200).Has(t, `"capacity":8`)
}

// TestPageShowsOlderChangesOnDemand: the history goes on where a page of it ends.
func TestPageShowsOlderChangesOnDemand(t *testing.T) {
	s := newServer(t)
	for i := range 25 {
		f := policies.Figures{Algorithm: limit.SlidingLog, Capacity: int64(i), Window: 60 * policies.One}
		_, err := s.store.Apply(soon(t), []table.Edit{{Key: "user:alice", Figures: f}}, "test", 0, false)
		check(t, err)
	}
	p := open(t, s)
	click(p, "#rows button")
	p.Wait(entries + " === 20")
	click(p, "#older")
	p.Wait(entries + " === 25")
	if got := p.Text(`document.querySelector("#older").hidden + " " + document.querySelectorAll("#past ` +
		`button").length`); got != "true 24" {
		t.Errorf("at the end: %s, want 24 buttons: one for each revision that is not in force", got)
	}
}

// TestPageOnAPhone: nothing is wider than a narrow phone.
func TestPageOnAPhone(t *testing.T) {
	s := newServer(t)
	long := "user:" + strings.Repeat("W", 200)
	s.put(t, long, "user:bob")
	f := policies.Figures{Algorithm: limit.TokenBucket, Capacity: 1_000_000_000, Refill: 10_000_000 * policies.One}
	_, err := s.store.Apply(soon(t), []table.Edit{{Key: long, Figures: f}},
		strings.Repeat("W", table.MaxChangedBy), 0, false)
	check(t, err)
	p := open(t, s)
	p.Viewport(360, 740, true)
	p.Wait(shown + " === 2")
	keep(t, p, "phone")
	if got := p.Text(tooWide); got != "0" {
		t.Errorf("the list is %s px wider than the phone", got)
	}
	click(p, "#rows button")
	says(p, "Then: ")
	p.Wait(entries + " === 2")
	keep(t, p, "phone-editor")
	if got := p.Text(
		`document.querySelector("#editor").scrollWidth > document.querySelector("#editor").clientWidth`); got != "false" {
		t.Error("what is in the editor is wider than the editor")
	}
	if got := p.Text(`document.querySelector("#editor").getBoundingClientRect().right > innerWidth`); got != "false" ||
		p.Text(tooWide) != "0" {
		t.Error("the editor is wider than the phone")
	}
}

// TestPageShowsMoreOnDemand: the list goes on where a page of it ends.
func TestPageShowsMoreOnDemand(t *testing.T) {
	s := newServer(t)
	var keys []string
	for i := range 150 {
		keys = append(keys, fmt.Sprintf("user:%03d", i))
	}
	s.put(t, keys...)
	p := open(t, s)
	p.Wait(shown + " === 100")
	click(p, "#more")
	p.Wait(shown + " === 150")
	if got := p.Text(`document.querySelector("#more").hidden + document.querySelector("#rows tr:last-child ` +
		`button").textContent`); got != "trueuser:149" {
		t.Errorf("at the end: %s", got)
	}
}

// TestPageRunsOnlyItsOwnScripts: the page may run what it is served with, and nothing else.
func TestPageRunsOnlyItsOwnScripts(t *testing.T) {
	get := func(target string) webtest.Answer {
		return webtest.Send(t, t.Context(), Page(), "GET", target, "")
	}
	for target, kind := range map[string]string{"/policies": "text/html", "/policies/app.js": "text/javascript",
		"/policies/app.css": "text/css", "/policies/icon.svg": "image/svg"} {
		a := get(target).Is(t, 200)
		policy := a.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(a.Header.Get("Content-Type"), kind) || !strings.Contains(policy, "default-src 'none'") ||
			strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %v", target, a.Header)
		}
	}
	page := get("/policies").Body
	for _, bad := range []string{"http:", "https:", "//", "style=", "onclick", "<style"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, kind := range []string{"token_bucket", "sliding_log", "sliding_window", "fixed_window"} {
		if !strings.Contains(page, `value="`+kind+`"`) {
			t.Errorf("the page does not know %s", kind)
		}
	}
	get("/policies/x").Is(t, 404)
}
