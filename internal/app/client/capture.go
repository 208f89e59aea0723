package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Admin is the admin API of a running service.
type Admin struct{ Slots }

// Get asks a path, and decodes the answer.
func (a *Admin) Get(ctx context.Context, path string, query url.Values, answer any) error {
	return a.Call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, answer)
}

// Capture writes what is asked of the service for some time to a writer, as lines of JSON, and returns how many
// requests are missing because the service could not send them in time. The query says what is captured.
func (a *Admin) Capture(ctx context.Context, period time.Duration, query url.Values, to io.Writer) (dropped string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, period+a.Timeout)
	defer cancel()
	query.Set("for", period.String())
	req, err := a.request(ctx, http.MethodGet, "/admin/capture?"+query.Encode(), nil)
	if err != nil {
		return "", err
	}
	conf, err := a.tlsConfig()
	if err != nil {
		return "", err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf,
		ResponseHeaderTimeout: a.Timeout}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", fmt.Errorf("no answer: %w; is the service running, and is --addr its admin address?", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return "", readAnswer(resp, data, nil)
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
