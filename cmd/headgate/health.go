package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func healthCommand() *cobra.Command {
	var opt dialOptions
	var service string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running service whether it is healthy",
		Long: `Ask a running service whether it is healthy, over TCP, TLS or a Unix socket,
as a probe does where there is no shell and no other client.

The exit code is 0 if it serves, and 1 otherwise: it drains, it does not answer
within --timeout, or it cannot be asked.`,
		Example: `  headgate health
  headgate health --addr unix:/run/headgate/rls.sock --service ratelimit
  headgate health --addr headgate.infra:8081 --tls-ca ca.pem`,
		Args:        noArgs,
		Annotations: map[string]string{probe: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := checkHealth(cmd.Context(), &opt, service)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
			if text != healthpb.HealthCheckResponse_SERVING.String() {
				return exitCode(exitProblems)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	opt.define(f)
	f.StringVar(&service, "service", "", "`name` of the service to ask about (default: all)")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	return cmd
}

// checkHealth returns the status that the service answers with.
func checkHealth(ctx context.Context, opt *dialOptions, service string) (string, error) {
	conn, err := opt.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, opt.timeout)
	defer cancel()
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	switch status.Code(err) {
	case codes.OK:
		return resp.Status.String(), nil
	case codes.NotFound:
		return "", fmt.Errorf("service at %s: --service %q is unknown there", opt.addr, service)
	}
	return "", opt.explain(err)
}
