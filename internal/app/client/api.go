package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// API is the HTTP API of a running service: that of slots, and the admin API.
type API struct {
	Options
	Via http.RoundTripper // carries the requests; nil: the network, to Addr
}

// SlotsURL is where slots are served by this process's environment.
func SlotsURL() string { return localURL("http", "http") }

// AdminURL is where admin paths are served by this process's environment.
func AdminURL() string {
	if env("admin") == "" {
		return SlotsURL()
	}
	scheme := "http"
	if env("admin-tls-cert") != "" {
		scheme = "https"
	}
	return localURL(scheme, "admin")
}

func localURL(scheme, setting string) string {
	const fallback = "127.0.0.1:8080"
	addr := LocalAddress(setting, fallback)
	if strings.HasPrefix(addr, "unix:") {
		addr = fallback // no URL names a socket
	}
	return scheme + "://" + addr
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 8 << 20

// A Refusal is an answer that is not 200.
type Refusal struct {
	Code       int
	Status     string // such as "404 Not Found"
	Message    string
	RetryAfter string // seconds; empty if asking again makes no difference
}

func (e *Refusal) Error() string { return e.Status + ": " + e.Message }

// RetryAfterMS returns RetryAfter in milliseconds.
func (e *Refusal) RetryAfterMS() int64 {
	seconds, _ := strconv.ParseInt(e.RetryAfter, 10, 32)
	return seconds * 1000
}

// A FlagError reports a wrong value of a flag: a retry does not help.
type FlagError struct{ error }

func (e *FlagError) Unwrap() error { return e.error }

// Call sends body, unless it is nil, as JSON to path, which may have a query, and
// reads the answer. Errors: *[Refusal], or that there was no answer.
func (a *API) Call(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	resp, err := a.send(ctx, method, path, body, "HTTP")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readAnswer(resp, answer)
}

// Get asks a path, and decodes the answer.
func (a *API) Get(ctx context.Context, path string, query url.Values, answer any) error {
	return a.Call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, answer)
}

// Capture writes what is asked of the service for some time to a writer, as lines of JSON, and returns how many
// requests are missing because the service could not send them in time. The query selects what is captured.
func (a *API) Capture(ctx context.Context, period time.Duration, query url.Values, to io.Writer) (dropped string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, period+a.Timeout)
	defer cancel()
	query.Set("for", period.String())
	resp, err := a.send(ctx, http.MethodGet, "/admin/capture?"+query.Encode(), nil, "admin")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", readAnswer(resp, nil)
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return "", fmt.Errorf("the capture has ended early: %w", err)
	}
	dropped = resp.Trailer.Get("X-Headgate-Dropped")
	if dropped == "" {
		return "", errors.New("the capture has ended early: the service has stopped it")
	}
	return dropped, nil
}

// send sends a request whose answer begins within the timeout. The connection is closed with the answer's body. kind is
// that of the address, for errors.
func (a *API) send(ctx context.Context, method, path string, body any, kind string) (*http.Response, error) {
	req, err := a.request(ctx, method, path, body)
	if err != nil {
		return nil, &FlagError{err}
	}
	conf, err := a.tlsConfig()
	if err != nil {
		return nil, &FlagError{err}
	}
	client := http.Client{Transport: a.Via, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for --addr, and a redirected PUT would be a GET
	}}
	if a.Via == nil {
		client.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, DisableKeepAlives: true,
			ResponseHeaderTimeout: a.Timeout}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w; is the service running, and is --addr its %s address?", err, kind)
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the answer (%s) says to ask %q instead: if that is the service, name it in --addr",
			resp.Status, to)
	}
	return resp, nil
}

func (a *API) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	at := a.Addr
	if _, _, err := net.SplitHostPort(at); err == nil && !strings.Contains(at, "://") {
		at = "http://" + at
	}
	base, err := url.Parse(at)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("--addr: %q is not a URL such as http://127.0.0.1:8080, or host:port", a.Addr)
	}
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(at, "/")+path, content)
	if err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := env("admin-token"); token != "" {
		req.Header.Set("Authorization", "Bearer "+token) // admin paths demand it, and all with --slots-auth
	}
	return req, nil
}

func readAnswer(resp *http.Response, answer any) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case resp.StatusCode == http.StatusNoContent:
		return nil
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusCreated:
		if err := json.Unmarshal(data, answer); err == nil {
			return nil
		}
	}
	var failure struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(data, &failure); err != nil || failure.Message == "" {
		return fmt.Errorf("unexpected answer (%s): is the service running with --slots, and does this listener serve "+
			"these paths?", resp.Status)
	}
	return &Refusal{resp.StatusCode, resp.Status, failure.Message, resp.Header.Get("Retry-After")}
}

// Local is a transport for [API] that passes requests to a handler in this process.
type Local struct{ Handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (l Local) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &written{header: http.Header{}, status: http.StatusOK}
	l.Handler.ServeHTTP(w, r)
	return &http.Response{StatusCode: w.status, Status: fmt.Sprint(w.status, " ", http.StatusText(w.status)),
		Header: w.header, Body: io.NopCloser(&w.body), Request: r}, nil
}

// written records the answer of a handler.
type written struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *written) Header() http.Header         { return w.header }
func (w *written) WriteHeader(status int)      { w.status = status }
func (w *written) Write(b []byte) (int, error) { return w.body.Write(b) }
