package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
)

// A live server listens on a port of its own, and can go away and come back.
type live struct {
	t       *testing.T
	handler http.Handler
	address string
	server  *http.Server
	done    chan struct{}
}

func serveLive(t *testing.T, s *server) *live {
	t.Helper()
	l := &live{t: t, handler: s.handler, address: "127.0.0.1:0"}
	l.start()
	t.Cleanup(l.stop)
	return l
}

func (l *live) start() {
	l.t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.address = listener.Addr().String()
	l.server, l.done = &http.Server{Handler: l.handler, ReadHeaderTimeout: time.Minute}, make(chan struct{})
	go func() {
		defer close(l.done)
		_ = l.server.Serve(listener) // ends with stop
	}()
}

func (l *live) stop() {
	_ = l.server.Close()
	<-l.done
}

func (l *live) url() string { return "http://" + l.address }

// keep writes a screenshot to the directory of HEADGATE_SCREENSHOTS, if there is one.
func keep(t *testing.T, name string, shot []byte) {
	t.Helper()
	dir := os.Getenv("HEADGATE_SCREENSHOTS")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644); err != nil {
		t.Error(err)
	}
}

// busy is a server whose default config has ten full windows from the instant on,
// and some more.
func busy(t *testing.T, from time.Time) *server {
	t.Helper()
	s := withDefault(t)
	for _, c := range []string{
		`{"configName":"card-payments","maxPerWindow":2500,"windowSize":"PT1M","jitter":"stratified"}`,
		`{"configName":"letters","maxPerWindow":10,"windowSize":"PT1H","calendar":{"zone":"Europe/Berlin","open":["mon-fri ` +
			`09:00-17:00"]}}`,
		`{"configName":"stopped","maxPerWindow":0,"windowSize":"PT1S"}`,
	} {
		s.admin(t, "POST", "/admin/rate-limit/config", c).Is(t, 200)
	}
	assign := func(prefix, at string, n int) {
		var events []string
		for i := range n {
			events = append(events, fmt.Sprintf(`{"eventId":"%s%d","requestedTime":%q}`, prefix, i, at))
		}
		s.do(t, "POST", "/api/v1/slots:batch", `{"events":[`+strings.Join(events, ",")+`]}`).Is(t, 200)
	}
	from = from.UTC().Truncate(4 * time.Second)
	assign("first", from.Add(4*time.Second).Format(time.RFC3339), 1000)
	for i := range 40 {
		assign(fmt.Sprint("then", i, "-"), from.Add(time.Duration(12+i)*4*time.Second).Format(time.RFC3339), 5+(i*37)%90)
	}
	return s
}

const (
	isLive    = `document.querySelector("#state").dataset.state === "live"`
	isAway    = `document.querySelector("#state").dataset.state === "away"`
	overflow  = `document.documentElement.scrollWidth - document.documentElement.clientWidth`
	barsFull  = `document.querySelectorAll(".bar.all").length`
	tableRows = `document.querySelectorAll("#rows tr").length`
)

// TestPageShowsWhatWasAssigned shows what was assigned, at an instant that the test knows.
func TestPageShowsWhatWasAssigned(t *testing.T) {
	testenv.Require(t, testenv.Chromium)
	t.Setenv("TZ", "Asia/Kolkata") // local time of the browser
	from := time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC)
	l := serveLive(t, busy(t, from))
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(1280, 900, false)
	p.ColorScheme("light")
	p.Navigate(l.url() + "/slots")
	p.Wait(isLive)
	p.Eval(`lookFrom(Date.UTC(2026, 2, 2, 9, 30, 0))`)
	p.Wait(barsFull + " === 10")

	for script, want := range map[string]string{
		`document.querySelectorAll(".card").length`:                                           "4",
		`document.querySelector(".card[aria-pressed=true]").dataset.name`:                     "default",
		`document.querySelectorAll(".bar").length`:                                            "60",
		`document.querySelector("#chosen-title").textContent`:                                 "default",
		`document.querySelector("#full").textContent`:                                         "10 of 60",
		`document.querySelector("#next").textContent`:                                         "2026-03-02 09:30:00 UTC",
		`document.querySelector("#axis span").textContent`:                                    "09:30:00 UTC\n15:00:00 local",
		`[...document.querySelectorAll(".bar")].findIndex(b => b.classList.contains("next"))`: "0",
		`document.querySelector("#empty").hidden`:                                             "true",
		`[...document.querySelectorAll("button, input, [tabindex='0']")].filter(e => e.checkVisibility() && ` +
			`!(e.textContent.trim() || e.ariaLabel || e.labels.length)).length`: "0",
	} {
		if got := p.Text(script); got != want {
			t.Errorf("%s is %q, want %q", script, got, want)
		}
	}
	light := p.Screenshot()
	keep(t, "light", light)

	// By keyboard: to the chart, along it, and to the table.
	p.Eval(`document.querySelector("#chart").focus()`)
	p.Eval(`for (const key of ["ArrowRight", "ArrowRight", "Home", ` +
		`"ArrowRight"]) document.querySelector("#chart").dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}))`)
	if got := p.Text(`document.querySelector("#chart").getAttribute("aria-valuetext")`); !strings.HasPrefix(got,
		"100 of 100, full · 2026-03-02 09:30:04 UTC, 2026-03-02 15:00:04 Asia/") {
		t.Errorf("the second window reads %q", got)
	}
	p.Eval(`document.querySelector("summary").click()`)
	p.Wait(tableRows + " === 60")
	if got := p.Text(`document.querySelector("#rows tr:nth-child(2)").textContent`); !strings.HasSuffix(got, "100100") {
		t.Errorf("the second row of the table is %q", got)
	}

	// What is assigned while somebody looks is there soon.
	busyNow := p.Text(`document.querySelector("#events").textContent`)
	resp, err := http.Post(l.url()+"/api/v1/slots", "application/json",
		strings.NewReader(`{"eventId":"late","requestedTime":"2026-03-02T09:30:00Z"}`))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("assign: %v %v", resp, err)
	}
	resp.Body.Close()
	p.Wait(fmt.Sprintf(`document.querySelector("#events").textContent !== %q`, busyNow))

	p.ColorScheme("dark")
	dark := p.Screenshot()
	keep(t, "dark", dark)
	if l, d := webtest.Brightness(t, light), webtest.Brightness(t, dark); l < 200 || d > 80 {
		t.Errorf("the mean brightness is %d in light and %d in dark", l, d)
	}

	for _, url := range p.Requests() {
		// The browser draws its own date field with data: URLs.
		if !strings.HasPrefix(url, l.url()+"/") && !strings.HasPrefix(url, "data:") {
			t.Errorf("the page asked for %s", url)
		}
	}
	if errs := p.ConsoleErrors(); len(errs) > 0 {
		t.Errorf("the console has %q", errs)
	}
}

// The next free window is shown although more windows are full than the page has.
func TestPageShowsTheNextFreeWindowBeyondThoseItDraws(t *testing.T) {
	testenv.Require(t, testenv.Chromium)
	s := real(t)
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"default","maxPerWindow":2,"windowSize":"PT1M"}`).Is(t,
		200)
	var events []string
	for i := range 150 {
		events = append(events, fmt.Sprintf(`{"eventId":"e%d","requestedTime":"2026-03-02T09:30:00Z"}`, i))
	}
	s.do(t, "POST", "/api/v1/slots:batch", `{"events":[`+strings.Join(events, ",")+`]}`).Is(t, 200)
	l := serveLive(t, s)
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(1280, 900, false)
	p.Navigate(l.url() + "/slots")
	p.Wait(isLive)
	p.Eval(`lookFrom(Date.UTC(2026, 2, 2, 9, 30, 0))`)
	p.Wait(barsFull + " === 60")
	if got := p.Text(`document.querySelector("#next").textContent`); got != "2026-03-02 10:45 UTC" {
		t.Errorf("the next free window is %q", got)
	}
	if errs := p.ConsoleErrors(); len(errs) > 0 {
		t.Errorf("the console has %q", errs)
	}
}

// TestPageOnPhone: nothing is wider than a narrow phone, whatever is shown.
func TestPageOnPhone(t *testing.T) {
	testenv.Require(t, testenv.Chromium)
	s := busy(t, time.Now())
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"`+strings.Repeat("W", 128)+
		`","maxPerWindow":9999999999,"windowSize":"PT0.1S","scope":"`+
		strings.Repeat("S", 128)+`"}`).Is(t, 200)
	l := serveLive(t, s)
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(360, 740, true)
	p.ColorScheme("light")
	p.Navigate(l.url() + "/slots")
	for _, name := range []string{"default", "letters", "stopped", strings.Repeat("W", 128)} {
		p.Eval(fmt.Sprintf(`location.hash = %q`, name))
		p.Wait(fmt.Sprintf(`document.querySelector("#chosen-title").textContent === %q`, name))
		if got := p.Text(overflow); got != "0" {
			t.Errorf("%s: the page is %s px wider than the phone", name, got)
		}
		keep(t, "phone-"+name[:7], p.Screenshot())
	}
	p.Eval(`document.querySelector("summary").click(); document.querySelector("#chosen").scrollIntoView()`)
	p.Wait(tableRows + " === 60")
	if got := p.Text(overflow); got != "0" {
		t.Errorf("with its table the page is %s px wider than the phone", got)
	}
	p.Eval(`location.hash = "default"`)
	p.Wait(`document.querySelector("#chosen-title").textContent === "default"`)
	p.Eval(`document.querySelector("#chosen").scrollIntoView()`)
	keep(t, "phone-chart", p.Screenshot())
	if errs := p.ConsoleErrors(); len(errs) > 0 {
		t.Errorf("the console has %q", errs)
	}
}

// TestPageWithoutConfigs says what to do, and goes on by itself when it is done.
func TestPageWithoutConfigs(t *testing.T) {
	testenv.Require(t, testenv.Chromium)
	s := real(t)
	l := serveLive(t, s)
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(360, 740, true)
	p.ColorScheme("dark")
	p.Navigate(l.url() + "/slots")
	p.Wait(isLive)
	keep(t, "empty", p.Screenshot())
	command := p.Text(`document.querySelector("#command").textContent`)
	if !strings.Contains(command, "curl -X POST "+l.url()+"/admin/rate-limit/config") ||
		p.Text(`document.querySelector("#empty").hidden`) != "false" || p.Text(overflow) != "0" {
		t.Errorf("the page shows %q, %s px too wide", command, p.Text(overflow))
	}
	_, body, _ := strings.Cut(command, "-d '")
	s.admin(t, "POST", "/admin/rate-limit/config", strings.TrimSuffix(body, "'")).Is(t, 200)
	p.Wait(`!document.querySelector("#chosen").hidden && document.querySelectorAll(".bar").length === 60`)
	if p.Text(`document.querySelector("#empty").hidden`) != "true" {
		t.Error("the page still says that there is no config")
	}
}

// TestPageWhileServerIsAway keeps what it has, says so, and recovers.
func TestPageWhileServerIsAway(t *testing.T) {
	testenv.Require(t, testenv.Chromium)
	l := serveLive(t, withDefault(t))
	p := testenv.StartChromium(t).NewPage()
	p.Viewport(1280, 800, false)
	p.ColorScheme("light")
	p.Navigate(l.url() + "/slots")
	p.Wait(isLive)
	l.stop()
	p.Wait(isAway)
	if got := p.Text(
		`document.querySelector("#alert").textContent + document.querySelectorAll(".bar").length`); !strings.Contains(got,
		"does not answer") || !strings.HasSuffix(got, "60") {
		t.Errorf("while the server is away the page says %q", got)
	}
	keep(t, "away", p.Screenshot())
	l.start()
	p.Wait(isLive)
	if p.Text(`document.querySelector("#alert").hidden`) != "true" {
		t.Error("the alert stays")
	}
}

// TestPageTellsWhatTheServerSays when the database is away.
func TestPageTellsWhatTheServerSays(t *testing.T) {
	testenv.Require(t, testenv.Chromium)
	l := serveLive(t, newServer(t, &scripted{err: context.DeadlineExceeded}))
	p := testenv.StartChromium(t).Open(l.url() + "/slots")
	p.Wait(isAway)
	if got := p.Text(`document.querySelector("#alert").textContent`); !strings.Contains(got, "took too long") {
		t.Errorf("the page says %q", got)
	}
}

// TestPageRunsOnlyItsOwnScripts: the page may run what it is served with, and nothing else.
func TestPageRunsOnlyItsOwnScripts(t *testing.T) {
	s := real(t)
	for target, kind := range map[string]string{"/slots": "text/html", "/slots/app.js": "text/javascript",
		"/slots/app.css": "text/css", "/slots/icon.svg": "image/svg"} {
		a := s.do(t, "GET", target, "").Is(t, 200)
		policy := a.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(a.Header.Get("Content-Type"), kind) || !strings.Contains(policy, "default-src 'none'") ||
			strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %v", target, a.Header)
		}
	}
	page := s.do(t, "GET", "/slots", "").Body
	for _, bad := range []string{"http:", "https:", "//", "style=", "onclick", "<style"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}
