package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Health returns the status that the service answers a health check with, such as
// SERVING. service is what the check is about; empty: all. An Addr that is a URL is asked
// over HTTP.
func (opt *Options) Health(ctx context.Context, service string) (string, error) {
	if strings.HasPrefix(opt.Addr, "http://") {
		return opt.healthOverHTTP(ctx, service)
	}
	if opt.Ready || opt.Own {
		return "", errors.New("--ready and --own are asked over HTTP: give --addr http://HOST:PORT")
	}
	conn, err := opt.Dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	switch status.Code(err) {
	case codes.OK:
		return resp.Status.String(), nil
	case codes.NotFound:
		return "", fmt.Errorf("service at %s: unknown --service %q", opt.Addr, service)
	}
	return "", opt.Explain(err)
}

// healthOverHTTP is Health by the HTTP port, which may be open where the gRPC port asks
// for certificates.
func (opt *Options) healthOverHTTP(ctx context.Context, service string) (string, error) {
	if service != "" || opt.TLS || opt.CA != "" || opt.Cert != "" {
		return "", fmt.Errorf("--addr %s is asked over HTTP, which has no --service and no --tls", opt.Addr)
	}
	ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()
	path := "/healthcheck"
	switch {
	case opt.Own:
		path = "/readyz?own"
	case opt.Ready:
		path = "/readyz"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(opt.Addr, "/")+path, nil)
	if err != nil {
		return "", fmt.Errorf("--addr: %w", err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("service at %s: no answer within --timeout %v", opt.Addr, opt.Timeout)
	}
	if err != nil {
		return "", fmt.Errorf("service at %s: %w", opt.Addr, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return healthpb.HealthCheckResponse_SERVING.String(), nil
	case http.StatusInternalServerError, http.StatusServiceUnavailable:
		return healthpb.HealthCheckResponse_NOT_SERVING.String(), nil
	}
	return "", fmt.Errorf("service at %s: unexpected answer %s", opt.Addr, resp.Status)
}
