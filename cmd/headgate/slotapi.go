package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/config"
)

// A slotAPI is the HTTP API of slots of a running service.
type slotAPI struct {
	dialOptions
}

// define adds the flags of a command that asks the API; addr is where it is unless
// they say otherwise.
func (a *slotAPI) define(cmd *cobra.Command, addr string) {
	f := cmd.Flags()
	f.StringVar(&a.addr, "addr", addr, "`URL` of the service; by default where its own settings in the environment say")
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "longest wait for an answer")
	f.StringVar(&a.ca, "tls-ca", "", "`file` with the authorities to trust (default: the system's)")
	f.StringVar(&a.cert, "tls-cert", "", "client certificate `file`")
	f.StringVar(&a.key, "tls-key", "", "client key `file`")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
}

// slotAddress is where slots are served if --addr does not say.
func slotAddress() string { return localURL("http", "http", "127.0.0.1:8080") }

// adminAddress is where admin paths are served if --addr does not say.
func adminAddress() string {
	if os.Getenv(config.EnvName("admin")) == "" {
		return slotAddress()
	}
	scheme := "http"
	if os.Getenv(config.EnvName("admin-tls-cert")) != "" {
		scheme = "https"
	}
	return localURL(scheme, "admin", "127.0.0.1:8080")
}

func localURL(scheme, setting, fallback string) string {
	addr := localAddress(setting, fallback)
	if strings.HasPrefix(addr, "unix:") {
		addr = fallback // no URL names a socket
	}
	return scheme + "://" + addr
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 8 << 20

// An apiError is an answer that is no success.
type apiError struct {
	code       int
	status     string // such as "404 Not Found"
	message    string
	retryAfter string // seconds
}

func (e *apiError) Error() string { return e.status + ": " + e.message }

// call sends body, unless it is nil, as JSON to path, which may have a query, and
// reads the answer. Errors: *apiError, or that there was no answer.
func (a *slotAPI) call(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	req, err := a.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	conf, err := a.tlsConfig()
	if err != nil {
		return err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("no answer: %w; is the service running, with --slots?", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	return readAnswer(resp, data, answer)
}

func (a *slotAPI) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	base, err := url.Parse(a.addr)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("--addr: %q is not a URL such as http://127.0.0.1:8080", a.addr)
	}
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.addr, "/")+path, content)
	if err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := os.Getenv(config.EnvName("admin-token")); token != "" {
		req.Header.Set("Authorization", "Bearer "+token) // admin paths demand it, and all with --slots-auth
	}
	return req, nil
}

func readAnswer(resp *http.Response, data []byte, answer any) error {
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, answer); err == nil {
			return nil
		}
	}
	var failure struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(data, &failure); err != nil || failure.Message == "" {
		return fmt.Errorf("the answer is not that of a slot service (%s): is it running with --slots, and is this the listener that has these paths?", resp.Status)
	}
	return &apiError{resp.StatusCode, resp.Status, failure.Message, resp.Header.Get("Retry-After")}
}
