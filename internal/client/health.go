package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Health returns the status that the service answers a health check with, such as
// SERVING. service is what the check is about; empty: all.
func (opt *Options) Health(ctx context.Context, service string) (string, error) {
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
