package testenv

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	browserStartLimit = 60 * time.Second
	browserAskLimit   = 30 * time.Second
)

// Browser is a running Chromium without a window.
type Browser struct {
	Version string

	tb   TB
	conn *devTools
}

// StartChromium starts a browser that knows no earlier visit. The test's cleanup
// ends it.
func StartChromium(tb TB) *Browser {
	tb.Helper()
	binary := Require(tb, Chromium)
	dir, err := os.MkdirTemp("", "hg-chromium-")
	if err != nil {
		tb.Fatalf("testenv: make a directory for Chromium: %v", err)
	}
	tb.Cleanup(func() { removeProfile(tb, dir) })
	log := filepath.Join(dir, "chromium.log")
	cmd := exec.Command(binary, chromiumArguments(filepath.Join(dir, "profile"))...)
	// What it would write to the home of who runs the tests goes to the profile.
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	proc, err := startCommand("Chromium", log, cmd)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	b := &Browser{tb: tb}
	tb.Cleanup(func() { b.end(proc) })
	if err := b.connect(proc); err != nil {
		tb.Fatalf("testenv: %v\nits log ends with:\n%s", err, tail(log, 20))
	}
	ran(tb, Chromium, b.Version)
	return b
}

func chromiumArguments(profile string) []string {
	args := []string{"--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
		"--disable-crash-reporter",
		"--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio", "--password-store=basic",
		"--user-data-dir=" + profile, "--remote-debugging-port=0",
		"--remote-allow-origins=" + devToolsOrigin}
	if os.Geteuid() == 0 {
		// Its sandbox does not work for root.
		args = append(args, "--no-sandbox")
	}
	return append(args, "about:blank")
}

// removeProfile removes the directory of a browser whose last processes may be
// on their way out.
func removeProfile(tb TB, dir string) {
	err := waitFor(10*time.Second, "remove the profile of Chromium", func() (bool, string, error) {
		err := os.RemoveAll(dir)
		return err == nil, fmt.Sprint(err), nil
	})
	if err != nil {
		tb.Errorf("testenv: %v", err)
	}
}

var devToolsAddress = regexp.MustCompile(`DevTools listening on (ws://\S+)`)

// connect waits until the browser prints its address, and connects to it.
func (b *Browser) connect(proc *process) error {
	var address string
	err := waitFor(browserStartLimit, "start Chromium", func() (bool, string, error) {
		if m := devToolsAddress.FindStringSubmatch(proc.newLog()); m != nil {
			address = m[1]
			return true, "", nil
		}
		if proc.exited() {
			return false, "", fmt.Errorf("it ended by itself (%v)", proc.err)
		}
		return false, "it does not listen yet", nil
	})
	if err != nil {
		return err
	}
	conn, err := dialDevTools(address)
	if err != nil {
		return err
	}
	b.conn = conn
	var v struct{ Product string }
	if err := b.conn.call("", "Browser.getVersion", nil, &v); err != nil {
		return err
	}
	_, b.Version, _ = strings.Cut(v.Product, "/")
	return nil
}

// end has the browser end all its processes, or kills it.
func (b *Browser) end(proc *process) {
	if b.conn != nil {
		// The answer may be lost, since it is the last thing that happens.
		_ = b.conn.call("", "Browser.close", nil, nil)
		b.conn.close()
		if proc.wait(10*time.Second) == nil {
			return
		}
	}
	if err := proc.killTree(); err != nil {
		b.tb.Errorf("testenv: %v", err)
	}
}

// Page is a tab of a browser. Its methods end the test when they fail.
type Page struct {
	browser *Browser
	session string

	mu       sync.Mutex
	loaded   int // times that a document was loaded
	requests []string
	errors   []string
}

// NewPage opens an empty tab, for what has to be set before the first document
// is loaded.
func (b *Browser) NewPage() *Page {
	b.tb.Helper()
	var target struct{ TargetID string }
	if err := b.conn.call("", "Target.createTarget", params{"url": "about:blank"}, &target); err != nil {
		b.tb.Fatalf("testenv: open a page: %v", err)
	}
	var session struct{ SessionID string }
	if err := b.conn.call("", "Target.attachToTarget", params{"targetId": target.TargetID, "flatten": true},
		&session); err != nil {
		b.tb.Fatalf("testenv: open a page: %v", err)
	}
	p := &Page{browser: b, session: session.SessionID}
	b.conn.listen(p.session, p.event)
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		p.call(domain+".enable", nil, nil)
	}
	return p
}

// Open opens a page and waits until it is loaded.
func (b *Browser) Open(url string) *Page {
	b.tb.Helper()
	p := b.NewPage()
	p.Navigate(url)
	return p
}

// call sends a command for this page.
func (p *Page) call(method string, args params, result any) {
	p.browser.tb.Helper()
	if err := p.browser.conn.call(p.session, method, args, result); err != nil {
		p.browser.tb.Fatalf("testenv: %v", err)
	}
}

// event notes what the browser reports about the page.
func (p *Page) event(method string, raw json.RawMessage) {
	var e struct {
		Request struct{ URL string }
		Type    string
		Args    []struct {
			Value       any
			Description string
		}
		ExceptionDetails exceptionDetails
		Entry            struct{ Level, Text, URL string }
	}
	if json.Unmarshal(raw, &e) != nil {
		return // an event of another form is ignored
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case method == "Page.loadEventFired":
		p.loaded++
	case method == "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	case method == "Runtime.consoleAPICalled" && (e.Type == "error" || e.Type == "assert"):
		var words []string
		for _, a := range e.Args {
			if a.Description == "" {
				a.Description = fmt.Sprint(a.Value)
			}
			words = append(words, a.Description)
		}
		p.errors = append(p.errors, strings.Join(words, " "))
	case method == "Runtime.exceptionThrown":
		p.errors = append(p.errors, e.ExceptionDetails.String())
	case method == "Log.entryAdded" && e.Entry.Level == "error":
		p.errors = append(p.errors, strings.TrimSpace(e.Entry.Text+" "+e.Entry.URL))
	}
}

// Navigate loads another document and waits until it is there with all that it
// names.
func (p *Page) Navigate(url string) {
	p.browser.tb.Helper()
	p.mu.Lock()
	before := p.loaded
	p.mu.Unlock()
	var answer struct{ ErrorText string }
	p.call("Page.navigate", params{"url": url}, &answer)
	if answer.ErrorText != "" {
		p.browser.tb.Fatalf("testenv: open %s: %s", url, answer.ErrorText)
	}
	err := waitFor(browserAskLimit, "load "+url, func() (bool, string, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.loaded > before, "still loading", p.browser.conn.failed()
	})
	if err != nil {
		p.browser.tb.Fatalf("testenv: %v", err)
	}
}

type exceptionDetails struct {
	Text      string
	Exception struct{ Description string }
}

func (e exceptionDetails) String() string {
	return strings.TrimSpace(e.Text + " " + e.Exception.Description)
}

// evaluate runs a script, waits for its promise if it gives one, and returns its
// value as JSON; nothing for undefined.
func (p *Page) evaluate(script string) (json.RawMessage, error) {
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *exceptionDetails
	}
	args := params{"expression": script, "returnByValue": true, "awaitPromise": true, "userGesture": true}
	if err := p.browser.conn.call(p.session, "Runtime.evaluate", args, &answer); err != nil {
		return nil, err
	}
	if answer.ExceptionDetails != nil {
		return nil, errors.New(answer.ExceptionDetails.String())
	}
	return answer.Result.Value, nil
}

// EvalInto runs a script in the page, waits for its promise if it gives one, and
// stores its value, as package json does.
func (p *Page) EvalInto(script string, value any) {
	p.browser.tb.Helper()
	raw, err := p.evaluate(script)
	if err == nil && raw != nil {
		err = json.Unmarshal(raw, value)
	}
	if err != nil {
		p.browser.tb.Fatalf("testenv: %s: %v", script, err)
	}
}

// Eval is EvalInto for any value: it returns a string, a float64, a bool, nil, or
// slices and maps of these.
func (p *Page) Eval(script string) any {
	p.browser.tb.Helper()
	var value any
	p.EvalInto(script, &value)
	return value
}

// Text runs a script and returns its value as a text.
func (p *Page) Text(script string) string {
	p.browser.tb.Helper()
	return fmt.Sprint(p.Eval(script))
}

// Wait waits until a script's value is true, or true for JavaScript. A script
// that throws is tried again, too: what it asks for may not be there yet.
func (p *Page) Wait(script string) {
	p.browser.tb.Helper()
	err := waitFor(browserAskLimit, "wait for "+script, func() (bool, string, error) {
		raw, err := p.evaluate("!!(" + script + ")")
		if err != nil {
			return false, err.Error(), p.browser.conn.failed()
		}
		return string(raw) == "true", string(raw), nil
	})
	if err != nil {
		p.browser.tb.Fatalf("testenv: %v", err)
	}
}

// Viewport sets the size of the page in CSS pixels; mobile makes it behave like
// one on a phone.
func (p *Page) Viewport(width, height int, mobile bool) {
	p.browser.tb.Helper()
	p.call("Emulation.setDeviceMetricsOverride", params{"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": mobile}, nil)
}

// Press presses a key and lets it go: "Tab" or "Enter".
func (p *Page) Press(key string) {
	p.browser.tb.Helper()
	code, ok := map[string]int{"Tab": 9, "Enter": 13}[key]
	if !ok {
		p.browser.tb.Fatalf("the key %q is not known", key)
	}
	event := params{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
	if key == "Enter" {
		event["text"] = "\r"
	}
	p.call("Input.dispatchKeyEvent", event, nil)
	p.call("Input.dispatchKeyEvent", params{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

// ColorScheme sets what the user prefers: "light" or "dark".
func (p *Page) ColorScheme(scheme string) {
	p.browser.tb.Helper()
	p.call("Emulation.setEmulatedMedia", params{"features": []params{{"name": "prefers-color-scheme", "value": scheme}}},
		nil)
}

// Screenshot returns what the viewport shows, as PNG.
func (p *Page) Screenshot() []byte {
	p.browser.tb.Helper()
	var shot struct{ Data string }
	p.call("Page.captureScreenshot", params{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.browser.tb.Fatalf("testenv: take a screenshot: %v", err)
	}
	return png
}

// ConsoleErrors returns what the page did wrong until now: errors that it logged,
// exceptions that nothing caught, and what could not be loaded or was refused.
func (p *Page) ConsoleErrors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.errors...)
}

// Requests returns the URLs that the page has asked for until now, in order.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// Screenshot opens a page in a browser of its own and returns what the viewport
// shows, as PNG.
func Screenshot(tb TB, url string, width, height int, dark bool) []byte {
	tb.Helper()
	p := StartChromium(tb).NewPage()
	p.Viewport(width, height, false)
	if dark {
		p.ColorScheme("dark")
	}
	p.Navigate(url)
	return p.Screenshot()
}

// DumpDOM opens a page in a browser of its own and returns the HTML of what its
// scripts made of it.
func DumpDOM(tb TB, url string) string {
	tb.Helper()
	return StartChromium(tb).Open(url).Text("document.documentElement.outerHTML")
}
