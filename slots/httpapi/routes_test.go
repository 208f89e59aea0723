package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/webtest"
)

// TestNoPlainText: what http.ServeMux would answer in plain text, or redirect,
// has the form of all errors.
func TestNoPlainText(t *testing.T) {
	s := withDefault(t)
	h, err := New(Config{Scheduler: newScheduler(t, slots.Settings{})})
	if err != nil {
		t.Fatal(err)
	}
	s = &server{h.API(), s.log} // as it is, with no mux in front
	for _, target := range []string{"/", "/x", "/api/v1/slots/", "/api/v1/slots/a/b", "/api/v1//slots",
		"/api/v1/../v1/slots",
		"/api/v1/slots%3Abatch", "/API/v1/slots", "/slots/", "/slots/app.txt", "/api/v1/slots/%ZZ"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL.Path, r.URL.RawPath = target, ""
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		webtest.Read(t, w.Result()).Is(t, 404)
	}
	for target, allow := range map[string]string{
		"/api/v1/slots": "POST, GET, HEAD", "/api/v1/slots:batch": "POST", "/api/v1/slots/x": "GET, HEAD",
		"/slots": "GET, HEAD",
	} {
		for _, method := range []string{"PUT", "DELETE", "OPTIONS", "TRACE", "FOO"} {
			if a := s.do(t, method, target, "").Is(t, 405); a.Header.Get("Allow") != allow {
				t.Errorf("%s %s: Allow is %q, want %q", method, target, a.Header.Get("Allow"), allow)
			}
		}
	}
	s.do(t, "GET", "/api/v1/slots:batch", "").Is(t, 405)
}

func TestHeadAnswersWithoutABody(t *testing.T) {
	live := httptest.NewServer(withDefault(t).handler)
	defer live.Close()
	resp, err := live.Client().Head(live.URL + "/api/v1/configs")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || len(body) != 0 || err != nil {
		t.Errorf("HEAD: %d %q %v", resp.StatusCode, body, err)
	}
}

// TestSlowBody: a body that does not arrive holds a request no longer than its
// time, and the connection is of use for nothing more.
func TestSlowBody(t *testing.T) {
	live := httptest.NewServer(real(t, func(c *Config) { c.Timeout = 50 * time.Millisecond }).handler)
	defer live.Close()
	conn, err := net.Dial("tcp", live.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /api/v1/slots HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
		"1000\r\n\r\n{")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	webtest.Read(t, resp).Is(t, 408).Says(t, "did not arrive in time")
}

// TestTimeoutOnTheWire: a request whose time is over gets an answer that says so, and the
// connection is of use still.
func TestTimeoutOnTheWire(t *testing.T) {
	ended := make(chan error, 2)
	s := newServer(t, &scripted{assign: func(ctx context.Context, _ slots.Request) (slots.Result, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return slots.Result{}, ctx.Err()
	}}, func(c *Config) { c.Timeout = 300 * time.Millisecond })
	live := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handler.ServeHTTP(w, r)
		select {
		case <-r.Context().Done():
			t.Error("the end of the request's time counts as the end of the connection")
		case <-time.After(100 * time.Millisecond): // as long as it would take to notice
		}
	}))
	defer live.Close()
	reused := false
	ctx := httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	for range 2 {
		r, err := http.NewRequestWithContext(ctx, "POST", live.URL+"/api/v1/slots", strings.NewReader(documented))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := live.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		webtest.Read(t, resp).Is(t, 503).Says(t, "took too long")
		select {
		case end := <-ended:
			if end != context.DeadlineExceeded {
				t.Errorf("the request ended with %v", end)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the request's time was over before the scheduler was asked")
		}
	}
	if !reused {
		t.Error("the second request had a new connection")
	}
}

func TestNewChecksTheConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Scheduler") {
		t.Errorf("the error is %v", err)
	}
	h, err := New(Config{Scheduler: newScheduler(t, slots.Settings{}), Timeout: -1})
	if err != nil || h.Timeout != 5*time.Second {
		t.Errorf("a timeout below zero is %v, error %v; want 5s", h.Timeout, err)
	}
}
