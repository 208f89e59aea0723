package testenv

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// testPage is black in the dark, and has a script that does something wrong.
const testPage = `<!doctype html><meta name=viewport content="width=device-width"><title>plain</title>
<link rel=icon href=data:,>
<style>body { background: rgb(250, 0, 0) }
@media (prefers-color-scheme: dark) { body { background: rgb(0, 0, 0) } }</style>
<p id=p>before</p><script src=/page.js></script>`

const testScript = `document.title = 'scripted';
setTimeout(() => { document.getElementById('p').textContent = 'after' }, 50);
console.error('the server said', 42);
fetch('/missing');
setTimeout(() => { throw new Error('nobody catches this') }, 0);`

func pageServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, testPage)
		case "/page.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, testScript)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestChromiumRunsAndReportsPages(t *testing.T) {
	t.Parallel()
	s := pageServer(t)
	b := StartChromium(t)
	p := b.Open(s.URL)
	if got := p.Eval("document.title"); got != "scripted" {
		t.Errorf("the title is %v", got)
	}
	if got := p.Eval("new Promise(f => setTimeout(() => f([1, 'a', null]), 10))"); fmt.Sprint(got) != "[1 a <nil>]" {
		t.Errorf("a promise gives %v", got)
	}
	if got := p.Eval("undefined"); got != nil {
		t.Errorf("undefined is %v", got)
	}
	p.Wait("document.getElementById('p').textContent == 'after'")
	for _, want := range []string{"the server said 42", "nobody catches this", s.URL + "/missing"} {
		find := func(text string) bool { return strings.Contains(text, want) }
		err := waitFor(browserAskLimit, "see the error "+want, func() (bool, string, error) {
			return slices.ContainsFunc(p.ConsoleErrors(), find), strings.Join(p.ConsoleErrors(), "; "), nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if got, want := p.Requests(), []string{s.URL + "/", s.URL + "/page.js", s.URL + "/missing"}; !slices.Equal(got, want) {
		t.Errorf("the page asked for %q, want %q", got, want)
	}
	p.Viewport(320, 480, true)
	if got := p.Text("innerWidth"); got != "320" {
		t.Errorf("on a phone the width is %s", got)
	}
	if other := b.Open("data:text/html,<p>two"); len(other.Requests()) != 1 || len(other.ConsoleErrors()) != 0 {
		t.Errorf("another page has %q and %q", other.Requests(), other.ConsoleErrors())
	}
}

func TestChromiumFailures(t *testing.T) {
	t.Parallel()
	b := StartChromium(t)
	for name, c := range map[string]struct {
		f    func(*Page)
		want string
	}{
		"a script that throws": {func(p *Page) { p.Eval("nobody.home") }, "nobody is not defined"},
		"a server that is not": {func(p *Page) { p.Navigate(fmt.Sprintf("http://127.0.0.1:%d/", FreePort(t))) },
			"ERR_CONNECTION_REFUSED"},
	} {
		t.Run(name, func(t *testing.T) {
			fatal := pretend(t, func(tb TB) {
				own := *b
				own.tb = tb
				c.f(own.Open("about:blank"))
			}).fatal
			if !strings.Contains(fatal, c.want) {
				t.Errorf("the test ends with %q, want %q", fatal, c.want)
			}
		})
	}
}

func TestScreenshotFollowsSizeAndColour(t *testing.T) {
	t.Parallel()
	s := pageServer(t)
	for _, c := range []struct {
		dark bool
		red  uint32
	}{{false, 250}, {true, 0}} {
		shot, err := png.Decode(bytes.NewReader(Screenshot(t, s.URL, 300, 200, c.dark)))
		if err != nil {
			t.Fatal(err)
		}
		if shot.Bounds() != image.Rect(0, 0, 300, 200) {
			t.Errorf("the picture is %v", shot.Bounds())
		}
		if red, _, _, _ := shot.At(290, 190).RGBA(); red>>8 != c.red {
			t.Errorf("dark is %v and red is %d, want %d", c.dark, red>>8, c.red)
		}
	}
}

func TestDumpDOM(t *testing.T) {
	t.Parallel()
	if got := DumpDOM(t, pageServer(t).URL); !strings.Contains(got, "<title>scripted</title>") {
		t.Errorf("the page is %s", got)
	}
}
