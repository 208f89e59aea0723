package middleware

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate"
	_ "github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/test/testenv"
)

const rules = `
domain: d
descriptors:
  - key: client
    limits: [{name: per-client, algorithm: sliding_log, limit: 2, window: 1h}]
  - key: own
    limits: [{algorithm: token_bucket, rate: 1/h, burst: 1}]
    response: {content: "<b>slow down</b>", headers: {content-type: text/html, x-own: "yes"}}
  - key: five
    concurrency: [{threshold: 5, response: {statusCode: 429}}]
  - key: one
    concurrency: [{threshold: 1, response: {statusCode: 503}}]
  - key: fails
    on_backend_error: error
    rate_limit: {unit: hour, requests_per_unit: 10}
resources:
  - method: POST
    path: /api/heavy-operation
    reject_hold: 2m
    concurrency:
      - {threshold: 2, response: {delay: {exact: 300}}}
      - threshold: 5
        response: {statusCode: 503, headers: {Retry-After: "30"}, content: Service temporarily overloaded}
      - {threshold: 10, response: {statusCode: 429, content: Rate limit exceeded}}
  - path: /limited
    rate_limit: {unit: hour, requests_per_unit: 1}
  - method: PUT
    path: /*
    rate_limit: {unit: hour, requests_per_unit: 3}
`

func open(t *testing.T, change ...func(*headgate.Options)) *headgate.Limiter {
	t.Helper()
	opt := headgate.Options{Rules: []headgate.Rules{headgate.YAML("rules.yaml", rules)}}
	for _, f := range change {
		f(&opt)
	}
	l, err := headgate.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// by describes all requests by one key.
func by(key string) Config {
	return Config{Domain: "d", Descriptors: []Descriptor{{{key, Text("x")}}}}
}

func get(h http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func TestRefusedRequestsAreToldWhyAndWhen(t *testing.T) {
	limiter := open(t)
	h := Handler(limiter, Config{Domain: "d", Headers: BothHeaders})(ok)
	for i := range 2 {
		w := get(h, "/")
		if w.Code != 200 || w.Body.String() != "hello" || w.Header().Get("X-RateLimit-Limit") != "2" ||
			w.Header().Get("X-RateLimit-Remaining") != strconv.Itoa(1-i) || w.Header().Get("Retry-After") != "" {
			t.Errorf("answer %d: %d %q %v", i, w.Code, w.Body, w.Header())
		}
	}
	w := get(h, "/")
	var body struct {
		Status           int
		Error, Timestamp string
		Message          string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 429 || body.Status != 429 ||
		body.Error != "Too Many Requests" ||
		!strings.HasPrefix(body.Message, "Too Many Requests: try again in ") || body.Timestamp == "" {
		t.Errorf("refusal: %d %s (%v)", w.Code, w.Body, err)
	}
	wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil || wait < 3590 || wait > 3600 || w.Header().Get("X-RateLimit-Remaining") != "0" ||
		w.Header().Get("RateLimit-Policy") != `"per-client";q=2;w=3600` || !strings.HasPrefix(w.Header().Get("RateLimit"),
		`"per-client";r=0;t=`) {
		t.Errorf("headers of the refusal: %v", w.Header())
	}

	h = Handler(limiter, by("own"))(ok)
	get(h, "/")
	w = get(h, "/")
	if w.Code != 429 || w.Body.String() != "<b>slow down</b>" || w.Header().Get("Content-Type") != "text/html" ||
		w.Header().Get("X-Own") != "yes" || w.Header().Get("Retry-After") == "" {
		t.Errorf("the rule's own response: %d %q %v", w.Code, w.Body, w.Header())
	}
}

// Rules by method and path apply without a descriptor, however the path is spelt.
// net/http keeps the host of a request apart from its headers. A rule by host must match all the same.
func TestHostIsAHeader(t *testing.T) {
	for name, value := range map[string]Extractor{"host": PlainHeader("Host"), "hash": Header("host")} {
		h := Handler(open(t), Config{Domain: "d", Descriptors: []Descriptor{{{"client", value}}}})(ok)
		for i := range 4 {
			host := func(r *http.Request) { r.Host = "example.com" }
			if w, want := get(h, "/", host), []int{200, 200, 429, 429}[i]; w.Code != want {
				t.Errorf("%s: answer %d: %d, want %d", name, i, w.Code, want)
			}
		}
		if w := get(h, "/", func(r *http.Request) { r.Host = "" }); w.Code != 200 {
			t.Errorf("%s: without a host: %d", name, w.Code)
		}
	}
}

// What Envoy calls headers and net/http keeps elsewhere is matched, too.
func TestResourcesMatchWhatIsNoHeaderInGo(t *testing.T) {
	limited := func(criteria string) string {
		rules := "domain: d\nresources:\n- path: /x\n  match: {headers: {" + criteria + "}}\n" +
			"  rate_limit: {unit: hour, requests_per_unit: 1}\n"
		h := Handler(open(t, func(o *headgate.Options) { o.Rules = []headgate.Rules{headgate.YAML("r.yaml", rules)} }),
			by("nothing"))(ok)
		codes := ""
		for _, site := range []string{"http://a.example", "http://a.example", "http://b.example", "https://c.example"} {
			codes += fmt.Sprint(get(h, site+"/x", func(r *http.Request) { r.TransferEncoding = []string{"chunked"} }).Code, " ")
		}
		return codes
	}
	for criteria, want := range map[string]string{
		`":authority": a.example`:      "200 429 200 200 ",
		`":scheme": http`:              "200 429 429 200 ",
		`":scheme": https`:             "200 200 200 200 ",
		`transfer-encoding: "chunked"`: "200 429 429 429 ",
	} {
		if got := limited(criteria); got != want {
			t.Errorf("%s: %s, want %s", criteria, got, want)
		}
	}
}

func TestResourcesAreMatched(t *testing.T) {
	h := Handler(open(t), by("nothing"))(ok)
	for path, want := range map[string]int{"/other": 200} {
		if w := get(h, path); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	codes := ""
	for _, path := range []string{"/limited?x=1", "/limited", "//limited", "/%6cimited", "/x/../limited", "/limited/"} {
		codes += fmt.Sprint(get(h, path).Code, " ")
	}
	if codes != "200 429 429 429 429 429 " {
		t.Errorf("answers %s", codes)
	}
}

// Rules by method and path count by the address that has connected, and by what a program names.
func TestResourcesCountByClient(t *testing.T) {
	const text = "domain: d\nresources:\n- path: /a\n  by: [remote_address, jwt.sub]\n  except: {network: 10.0.0.0/8}\n" +
		"  rate_limit: {unit: hour, requests_per_unit: 1}\n- path: /b\n  by: masked_remote_address\n" +
		"  rate_limit: {unit: hour, requests_per_unit: 1}\n"
	conf := by("nothing")
	conf.Values = []Entry{{"jwt.sub", PlainHeader("x-sub")}}
	h := Handler(open(t, func(o *headgate.Options) {
		o.Rules = []headgate.Rules{headgate.YAML("r.yaml", text)}
	}), conf)(ok)
	for _, c := range []struct {
		path, from, sub string
		want            int
	}{
		{"/a", "192.0.2.1:80", "x", 200}, {"/a", "192.0.2.1:81", "x", 429}, {"/a", "192.0.2.1:80", "y", 200},
		{"/a", "192.0.2.2:80", "x", 200}, {"/a", "192.0.2.1:80", "", 200}, {"/a", "192.0.2.1:80", "", 429},
		{"/a", "10.0.0.1:80", "x", 200}, {"/a", "10.0.0.1:80", "x", 200},
		{"/a", "[2001:db8::1]:80", "x", 200}, {"/a", "[2001:db8::2]:80", "x", 200}, {"/a", "[2001:db8::2]:80", "x", 429},
		{"/b", "[2001:db8::1]:80", "", 200}, {"/b", "[2001:db8::2]:80", "", 429}, {"/b", "[2001:db8:0:1::]:80", "", 200},
		{"/b", "@", "", 200}, {"/b", "@", "", 429}, // of a Unix socket: all together
	} {
		got := get(h, c.path, func(r *http.Request) {
			r.RemoteAddr = c.from
			if c.sub != "" {
				r.Header.Set("x-sub", c.sub)
			}
		}).Code
		if got != c.want {
			t.Errorf("%v: %d", c, got)
		}
	}
}

// A rule for all paths holds for requests without a path, as HTTP lets clients write them.
func TestTargetsWithoutAPathAreMatched(t *testing.T) {
	served := 0
	server := httptest.NewServer(
		Handler(open(t), by("nothing"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	codes := ""
	for _, target := range []string{"/x", "x:y", "*", "y:x?/z", "http:a", "*", "/x", "http://a", "https://a?q"} {
		fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\n\r\n", target)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(target, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		codes += fmt.Sprint(resp.StatusCode, " ")
	}
	if want := "200 200 200" + strings.Repeat(" 429", 6) + " "; codes != want || served != 3 {
		t.Errorf("answers %s, %d served", codes, served)
	}
	path := Path()
	for given, want := range map[string]string{"/x": "/x", "": "/"} {
		if got, ok := path(&http.Request{URL: &url.URL{Path: given}}); got != want || !ok {
			t.Errorf("the path of %q is %q", given, got)
		}
	}
}

// A request that passes several middlewares is charged once for each descriptor.
func TestRequestCountsOnce(t *testing.T) {
	limiter := open(t)
	limit := Handler(limiter, Config{Domain: "d"})
	again := Handler(limiter,
		Config{Domain: "d", Descriptors: []Descriptor{{{"own", Text("x")}}, {{"client", ClientIP()}}}})
	h := limit(limit(again(limit(ok))))
	if w := get(h, "/"); w.Code != 200 {
		t.Fatalf("the first request: %d %s", w.Code, w.Body)
	}
	d, err := limiter.Peek(t.Context(), "d", headgate.Describe("client", "192.0.2.1"))
	if err != nil || d.Remaining != 1 {
		t.Errorf("the request was not charged once: %+v, %v", d, err)
	}
	if d, err := limiter.Peek(t.Context(), "d", headgate.Describe("own", "x")); err != nil || d.Remaining != 0 {
		t.Errorf("another descriptor was not charged: %+v, %v", d, err)
	}
	if w := get(h, "/"); w.Code != 429 {
		t.Errorf("the inner limit refuses nobody: %d", w.Code)
	}
}

// So does one with a single descriptor of one entry, where no rules by path want more.
func TestPlainRequestCountsOnce(t *testing.T) {
	limiter := open(t, func(o *headgate.Options) {
		o.Rules = []headgate.Rules{headgate.YAML("plain.yaml", `
domain: plain
descriptors:
  - key: client
    limits: [{algorithm: sliding_log, limit: 2, window: 1h}]
  - key: own
    limits: [{algorithm: sliding_log, limit: 1, window: 1h}]
`)}
	})
	limit := Handler(limiter, Config{Domain: "plain", Headers: BothHeaders})
	own := Handler(limiter, Config{Domain: "plain", Descriptors: []Descriptor{{{"own", Text("x")}}}})
	h := limit(limit(own(limit(ok))))
	w := get(h, "/")
	if w.Code != 200 || w.Header().Get("X-RateLimit-Limit") != "1" || w.Header().Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("the first request: %d %v", w.Code, w.Header())
	}
	for key, want := range map[string]int64{"client": 1, "own": 0} {
		d, err := limiter.Peek(t.Context(), "plain",
			headgate.Describe(key, map[string]string{"client": "192.0.2.1", "own": "x"}[key]))
		if err != nil || d.Remaining != want {
			t.Errorf("%s: %+v, %v, want %d left", key, d, err, want)
		}
	}
	if w := get(h, "/"); w.Code != 429 || w.Header().Get("X-RateLimit-Limit") != "1" {
		t.Errorf("the second request: %d %v", w.Code, w.Header())
	}
}

// A number that is kept is shown for no other one.
func TestKeptNumberIsShownForItself(t *testing.T) {
	var w number
	for _, n := range []int64{5, 1_000_000_000, 5, 0, 1_000_000_000} {
		if got := w.format(n); got != strconv.FormatInt(n, 10) {
			t.Errorf("%d is written as %s", n, got)
		}
	}
}

// Tiers answer exactly as their rule says: status, headers, body and delay.
func TestTiersAnswerAsTheirRuleSays(t *testing.T) {
	leave, entered := make(chan struct{}), make(chan struct{}, 20)
	h := Handler(open(t), by("nothing"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "Operation queued")
	}))
	var running sync.WaitGroup
	post := func(check func(*httptest.ResponseRecorder)) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/heavy-operation", nil))
		check(w)
	}
	queued := func(w *httptest.ResponseRecorder) {
		if w.Code != 202 || w.Body.String() != "Operation queued" {
			t.Errorf("admitted: %d %q", w.Code, w.Body)
		}
	}
	for i := range 5 {
		start := time.Now()
		running.Go(func() { post(queued) })
		<-entered
		if took := time.Since(start); i >= 2 && took < 300*time.Millisecond {
			t.Errorf("request %d waited %v, want 300 ms", i+1, took)
		}
	}
	for i := range 7 {
		post(func(w *httptest.ResponseRecorder) {
			status, body, retry := 503, "Service temporarily overloaded", "30"
			if i >= 5 { // the eleventh in all
				status, body, retry = 429, "Rate limit exceeded", "1"
			}
			if w.Code != status || w.Body.String() != body || w.Header().Get("Retry-After") != retry {
				t.Errorf("request %d: %d %q %v", i+6, w.Code, w.Body, w.Header())
			}
		})
	}
	close(leave)
	running.Wait()
}

// Of 200 clients that come at once, in many rounds, five are inside at most, whatever
// their handlers do: return, panic, take the connection over, or go on without the client.
func TestFiveAreInsideAtMost(t *testing.T) {
	for name, hold := range map[string]Hold{"until response": UntilResponse, "until return": UntilReturn} {
		t.Run(name, func(t *testing.T) {
			limiter := open(t)
			conf := by("five")
			conf.Hold = hold
			var inside, most, passed atomic.Int64
			leave := func() { inside.Add(-1) }
			server := httptest.NewUnstartedServer(
				Handler(limiter, conf)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n := inside.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					switch passed.Add(1) % 4 {
					case 0:
						leave()
						panic(http.ErrAbortHandler)
					case 1:
						if hold == UntilReturn {
							defer leave()
						} else {
							leave()
						}
						conn, _, err := http.NewResponseController(w).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
						_ = conn.Close()
					case 2:
						w.(http.Flusher).Flush()
						if hold == UntilReturn {
							time.Sleep(time.Millisecond)
							leave()
						} else {
							leave()
							<-r.Context().Done() // the client leaves
						}
					default:
						_, _ = io.WriteString(w, "hello")
						leave()
					}
				})))
			server.Config.ErrorLog = nil
			server.Start()
			defer server.Close()
			var running sync.WaitGroup
			var refused atomic.Int64
			for range 200 {
				running.Go(func() {
					client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
					for range 10 {
						resp, err := client.Get(server.URL)
						if err != nil {
							continue // a panic
						}
						if resp.StatusCode == 429 {
							refused.Add(1)
						}
						_ = resp.Body.Close() // leaves before the end
					}
				})
			}
			running.Wait()
			if most.Load() > 5 || passed.Load() < 20 {
				t.Errorf("%d were inside at once; %d passed, %d were refused", most.Load(), passed.Load(), refused.Load())
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				d, err := limiter.Peek(t.Context(), "d", headgate.Describe("five", "x"))
				if err == nil && d.Remaining == 5 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("after the last request %d of 5 places are free (%v)", d.Remaining, err)
				}
			}
		})
	}
}

// A handler that never ends keeps no place once its client has left, unless Hold says so.
func TestPlaceOfAClientThatLeaves(t *testing.T) {
	for hold, want := range map[Hold]bool{UntilResponse: true, UntilReturn: false} {
		limiter := open(t)
		conf := by("one")
		conf.Hold = hold
		end, started := make(chan struct{}), make(chan struct{})
		server := httptest.NewServer(Handler(limiter, conf)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(started)
			<-r.Context().Done()
			<-end // although nobody waits
		})))
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = http.DefaultClient.Do(req)
		}()
		<-started
		if free(t, limiter) {
			t.Errorf("hold %d: the request has no place", hold)
		}
		leave()
		<-gone
		deadline := time.Now().Add(time.Minute)
		if !want {
			deadline = time.Now().Add(300 * time.Millisecond)
		}
		for !free(t, limiter) && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		if free(t, limiter) != want {
			t.Errorf("hold %d: the place is free: %v", hold, !want)
		}
		close(end)
		server.Close()
		if !free(t, limiter) {
			t.Errorf("hold %d: the place is not free after the end", hold)
		}
	}
}

func free(t *testing.T, limiter *headgate.Limiter) bool {
	t.Helper()
	d, err := limiter.Peek(t.Context(), "d", headgate.Describe("one", "x"))
	if err != nil {
		t.Fatal(err)
	}
	return d.Allowed
}

// What a ResponseWriter can do it can do behind the middleware, and no more; but a copy is possible to any.
func TestResponseWriterKeepsItsAbilities(t *testing.T) {
	type base struct{ http.ResponseWriter }
	type withFlush struct {
		base
		http.Flusher
	}
	type withAll struct {
		base
		http.Flusher
		http.Hijacker
		io.ReaderFrom
	}
	type withHijack struct {
		base
		http.Hijacker
	}
	type withNotify struct {
		withAll
		closeNotifier
	}
	recorder := httptest.NewRecorder()
	hj := hijacker{}
	for name, w := range map[string]http.ResponseWriter{
		"nothing": base{recorder}, "flush": withFlush{base{recorder}, recorder},
		"all": withAll{base{recorder}, recorder, hj, hj}, "hijack": withHijack{base{recorder}, hj},
		"notify": withNotify{withAll{base{recorder}, recorder, hj, hj}, hj},
	} {
		hijacked := 0
		n := notifyHijack(w, func() { hijacked++ })
		_, f1 := w.(http.Flusher)
		_, f2 := n.(http.Flusher)
		_, r1 := w.(io.ReaderFrom)
		_, r2 := n.(io.ReaderFrom)
		_, h1 := w.(http.Hijacker)
		_, h2 := n.(http.Hijacker)
		_, c1 := w.(closeNotifier)
		_, c2 := n.(closeNotifier)
		if f1 != f2 || r1 && !r2 || h1 != h2 || c1 != c2 {
			t.Errorf("%s: flush %v %v, read %v %v, hijack %v %v, close %v %v", name, f1, f2, r1, r2, h1, h2, c1, c2)
		}
		if n, err := io.Copy(n, struct{ io.Reader }{strings.NewReader("copy")}); err != nil || n != 4 && !r1 {
			t.Errorf("%s: %d bytes are copied: %v", name, n, err)
		}
		if h1 {
			if _, _, err := http.NewResponseController(n).Hijack(); err != nil || hijacked != 1 {
				t.Errorf("%s: hijack: %v, told %d times", name, err, hijacked)
			}
		}
		if f1 && http.NewResponseController(n).Flush() != nil {
			t.Errorf("%s cannot flush", name)
		}
	}
}

// A handler that streams, and counts as one request in flight, learns that its client has left.
func TestFlushTellsThatTheClientHasLeft(t *testing.T) {
	failed := make(chan error, 1)
	server := httptest.NewServer(
		Handler(open(t), by("five"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			var err error
			for end := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
				_, _ = io.WriteString(w, "more")
				err = http.NewResponseController(w).Flush()
			}
			failed <- err
		})))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := <-failed; err == nil {
		t.Error("Flush succeeds for good")
	}
}

type hijacker struct{}

func (hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }
func (hijacker) ReadFrom(io.Reader) (int64, error)            { return 0, nil }
func (hijacker) CloseNotify() <-chan bool                     { return nil }

// The server removes what a form has in files, also behind the middleware.
func TestFilesOfFormsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	limiter := open(t)
	files := func() int {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for _, key := range []string{"client", "five"} {
		handled := make(chan int, 1)
		server := httptest.NewServer(
			Handler(limiter, by(key))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(1); err != nil {
					t.Error(err)
				}
				handled <- files()
			})))
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("name", "file")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = part.Write(make([]byte, 11<<20)) // more than a form has in memory in any case
		form.Close()
		resp, err := http.Post(server.URL, form.FormDataContentType(), &body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		server.Close() // waits for the server to have ended the request
		if during, after := <-handled, files(); during != 1 || after != 0 {
			t.Errorf("%s: %d files, then %d; want 1, then 0", key, during, after)
		}
	}
}

// A store that hangs, and a limiter that is closed, hold nobody up.
func TestRequestsThatCannotBeDecided(t *testing.T) {
	redis := testenv.StartRedis(t)
	limiter := open(t, func(o *headgate.Options) { o.Backend, o.Timeout = redis.URL(), 100*time.Millisecond })
	h := Handler(limiter, by("fails"))(ok)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		w := get(h, "/")
		if w.Code == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("before: %d %s", w.Code, w.Body)
		}
	}
	redis.Pause()
	start := time.Now()
	if w := get(h, "/"); w.Code != 503 || time.Since(start) > 20*time.Second {
		t.Errorf("on_backend_error: error: %d %s after %v", w.Code, w.Body, time.Since(start))
	}
	if w := get(Handler(limiter, by("own"))(ok), "/"); w.Code != 200 {
		t.Errorf("on_backend_error: allow: %d %s", w.Code, w.Body)
	}
	redis.Resume()
	_ = limiter.Close()
	if w := get(h, "/"); w.Code != 503 {
		t.Errorf("closed: %d %s", w.Code, w.Body)
	}
	pass := by("fails")
	pass.OnError = func(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
		if !errors.Is(err, headgate.ErrClosed) {
			t.Error(err)
		}
		next.ServeHTTP(w, r)
	}
	if w := get(Handler(limiter, pass)(ok), "/"); w.Code != 200 {
		t.Errorf("OnError that lets pass: %d", w.Code)
	}
}

// A limiter that is closed while requests are in flight ends their leases, and nobody hangs.
func TestLimiterIsClosedBesideRequests(t *testing.T) {
	limiter := open(t)
	h := Handler(limiter,
		by("five"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { time.Sleep(time.Millisecond) }))
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			for get(h, "/").Code != 503 {
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if err := limiter.Close(); err != nil {
		t.Error(err)
	}
	running.Wait()
}

// TestUnknownKeysAreInTheLog: descriptors that meet no rule are not limited, and the log of the limiter says so.
func TestUnknownKeysAreInTheLog(t *testing.T) {
	var log strings.Builder
	limiter := open(t, func(o *headgate.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	serve := Handler(limiter, by("onee"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		serve.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	if strings.Count(log.String(), "descriptors that no rule matches are not limited") != 1 ||
		!strings.Contains(log.String(), "did you mean") {
		t.Errorf("the log is\n%s", &log)
	}
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	limiter := open(t)
	for want, f := range map[string]func(){
		"the limiter is nil":           func() { Handler(nil, by("one")) },
		"Config.Domain is empty":       func() { Handler(limiter, Config{}) },
		"Config.Descriptors[0] has no": func() { Handler(limiter, Config{Domain: "d", Descriptors: []Descriptor{{}}}) },
		"Config.Descriptors[0][0] needs": func() {
			Handler(limiter, Config{Domain: "d", Descriptors: []Descriptor{{{"k", nil}}}})
		},
		"Config.Hold is 7": func() { Handler(limiter, Config{Domain: "d", Hold: 7}) },
		"TrustedHops(-1)":  func() { TrustedHops(-1) },
		"IPv6Bits(0)":      func() { IPv6Bits(0) },
	} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), want) {
					t.Errorf("want a panic with %q, got %v", want, p)
				}
			}()
			f()
		}()
	}
}

// TestSpend: a request reserves units, and its handler says what it has cost.
func TestSpend(t *testing.T) {
	l := open(t, func(o *headgate.Options) {
		o.Rules = []headgate.Rules{headgate.YAML("rules.yaml", `
domain: d
descriptors:
  - key: client
    reserve: {amount: estimate, default: 400, on_lost: charge}
    limits: [{algorithm: fixed_window, limit: 1000, window: 24h}]
`)}
	})
	limit := Handler(l, Config{
		Domain: "d", Descriptors: []Descriptor{{{Key: "client", Value: PlainHeader("X-Client")}}},
		Estimate: func(r *http.Request) uint64 { return uint64(r.ContentLength) },
	})
	var spend []uint64
	h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, n := range spend {
			Spend(r, n)
		}
	}))
	for _, c := range []struct {
		estimate string
		spend    []uint64
		status   int
		left     int64
	}{
		{strings.Repeat("x", 300), []uint64{40, 10}, 200, 950},
		{"", []uint64{0}, 200, 950},
		{"", nil, 200, 550}, // nobody says what it has cost
		{strings.Repeat("x", 600), nil, 429, 550},
		{"", []uint64{math.MaxUint64, 1}, 200, 0},
	} {
		spend = c.spend
		r := httptest.NewRequest("POST", "/", strings.NewReader(c.estimate))
		r.Header.Set("X-Client", "a")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		d, err := l.Peek(t.Context(), "d", headgate.Describe("client", "a"))
		if err != nil || w.Code != c.status || d.Remaining != c.left {
			t.Errorf("an estimate of %d, spent %v: status %d, %d left; want %d, %d (%v)", len(c.estimate), c.spend, w.Code,
				d.Remaining, c.status, c.left, err)
		}
	}
	Spend(httptest.NewRequest("GET", "/", nil), 5) // of no middleware
}

// A request whose client leaves before it is passed on has cost nothing.
func TestClientThatLeavesDuringADelaySpendsNothing(t *testing.T) {
	l := open(t, func(o *headgate.Options) {
		o.Rules = []headgate.Rules{headgate.YAML("rules.yaml", `
domain: d
descriptors:
  - key: client
    reserve: {amount: estimate, default: 400, on_lost: charge}
    limits: [{algorithm: fixed_window, limit: 1000, window: 24h}]
  - key: slow
    concurrency: [{threshold: 0, response: {delay: {exact: 60000}}}]
`)}
	})
	h := Handler(l, Config{Domain: "d", Estimate: func(*http.Request) uint64 { return 300 },
		Descriptors: []Descriptor{{{"client", Text("a")}}, {{"slow", Text("a")}}}})(ok)
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	get(h, "/", func(r *http.Request) { *r = *r.WithContext(ctx) })
	d, err := l.Peek(t.Context(), "d", headgate.Describe("client", "a"))
	if err != nil || ctx.Err() == nil || d.Remaining != 1000 {
		t.Errorf("%d of 1000 units are left (%v)", d.Remaining, err)
	}
}
