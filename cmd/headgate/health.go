package main

import (
	"fmt"

	"github.com/spf13/cobra"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate-rls/headgate/internal/app/client"
)

func healthCommand() *cobra.Command {
	var opt client.Options
	var service string
	var format *format
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check the health of a running service",
		Long: `Check the health of a running service over TCP, TLS or a Unix socket, for
example as the probe of a container that has no shell. An --addr that begins
with http:// is the HTTP port: use it where the gRPC port asks for certificates.

The exit code is 0 if the service is SERVING. It is 1 if the service drains,
does not answer within --timeout, or cannot be reached.`,
		Example: `  headgate health
  headgate health --addr unix:/run/headgate/rls.sock --service ratelimit
  headgate health --addr headgate.infra:8081 --tls-ca ca.pem
  headgate health --addr http://127.0.0.1:8080`,
		Args:        noArgs,
		Annotations: map[string]string{probe: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := opt.Health(cmd.Context(), service)
			if err != nil {
				return err
			}
			fmt.Fprintln(format.writer(cmd.OutOrStdout(), map[string]string{"status": text}), text)
			return exitIf(text != healthpb.HealthCheckResponse_SERVING.String(), exitProblems)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	format = defineFormat(cmd)
	defineClient(cmd, &opt)
	f.BoolVar(&opt.Ready, "ready", false, "ask /readyz, which fails while the store does not answer; --addr is http://…")
	f.BoolVar(&opt.Own, "own", false, "as --ready, but whether stores answer that replicas share does not count")
	f.StringVar(&service, "service", "", "`name` of the gRPC service to check (default: all)")
	return cmd
}
