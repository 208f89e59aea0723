package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Slots is the HTTP API of slots of a running service.
type Slots struct {
	Options
	Via http.RoundTripper // carries the requests; nil: the network, to Addr
}

// SlotsURL is where slots are served by this process's environment.
func SlotsURL() string { return localURL("http", "http", "127.0.0.1:8080") }

// AdminURL is where admin paths are served by this process's environment.
func AdminURL() string {
	if env("admin") == "" {
		return SlotsURL()
	}
	scheme := "http"
	if env("admin-tls-cert") != "" {
		scheme = "https"
	}
	return localURL(scheme, "admin", "127.0.0.1:8080")
}

func localURL(scheme, setting, fallback string) string {
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
func (a *Slots) Call(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	req, err := a.request(ctx, method, path, body)
	if err != nil {
		return &FlagError{err}
	}
	conf, err := a.tlsConfig()
	if err != nil {
		return &FlagError{err}
	}
	client := http.Client{Transport: a.Via}
	if a.Via == nil {
		client.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf}
		defer client.CloseIdleConnections()
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer: %w; is the service running, and is --addr its HTTP address?", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	return readAnswer(resp, data, answer)
}

func (a *Slots) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	base, err := url.Parse(a.Addr)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("--addr: %q is not a URL such as http://127.0.0.1:8080", a.Addr)
	}
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.Addr, "/")+path, content)
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

func readAnswer(resp *http.Response, data []byte, answer any) error {
	switch {
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

// A Slot is what became of one event.
type Slot struct {
	Status        int    `json:"status"`                  // as HTTP has it; 200: the event has a slot
	EventID       string `json:"eventId,omitempty"`       // empty if the answer is about all events
	ScheduledTime string `json:"scheduledTime,omitempty"` // RFC 3339
	DelayMs       int64  `json:"delayMs"`                 // from the time that was asked for
	Replayed      bool   `json:"replayed"`                // the event had the slot before
	Message       string `json:"message,omitempty"`       // why there is no slot
	RetryAfter    int64  `json:"retryAfter,omitempty"`    // seconds, from the service; Assign makes RetryAfterMs of it
	RetryAfterMs  int64  `json:"retryAfterMs,omitempty"`
}

// Assign asks for slots from the time at (RFC 3339) by a config, empty for the default
// one, and returns one result for each event. The service takes at most [slots.MaxBatch]
// events. Errors: *[Refusal], or that there was no answer.
func (a *Slots) Assign(ctx context.Context, events []string, config, at string) ([]Slot, error) {
	type ask struct {
		EventID       string `json:"eventId"`
		ConfigName    string `json:"configName,omitempty"`
		RequestedTime string `json:"requestedTime"`
	}
	asks := make([]ask, len(events))
	for i, event := range events {
		asks[i] = ask{event, config, at}
	}
	var answer struct {
		Results []Slot `json:"results"`
	}
	if err := a.Call(ctx, http.MethodPost, "/api/v1/slots:batch", map[string]any{"events": asks}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(events) {
		return nil, fmt.Errorf("the answer has %d results for %d events", len(answer.Results), len(events))
	}
	for i := range answer.Results {
		r := &answer.Results[i]
		r.RetryAfterMs, r.RetryAfter = r.RetryAfter*1000, 0
	}
	return answer.Results, nil
}
