package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve rate-limit decisions",
		Long: `Serve rate-limit decisions from the rules in --rules, and reload the rules when
their files change.

Every flag can also be set in the environment (--log-level as
HEADGATE_LOG_LEVEL; several values separated by commas) and in the YAML file
that --config names (log-level: warn). A flag beats the environment, which
beats the file. Put secrets, such as the password in --backend, into the
environment or the file: other users of the machine can see flags.`,
		Example: `  headgate serve --example
  headgate serve --rules rules/ --backend redis://localhost:6379
  headgate serve --rules rules/ --grpc unix:/run/headgate/rls.sock`,
		Args: noArgs,
	}
	cmd.Flags().SortFlags = false
	conf := config.Define(cmd.Flags())
	completeSettings(cmd)
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Usage:\n  %s\n\nExamples:\n%s\n\n%s", cmd.UseLine(), cmd.Example,
			config.Settings().Usage(cmd.Flags()))
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := config.Resolve(cmd.Flags(), conf, os.Environ()); err != nil {
			return inputError{err}
		}
		return server.Run(cmd.Context(), server.Config{
			Settings: conf, Log: conf.Logger(cmd.ErrOrStderr()), Version: buildVersion(),
		})
	}
	return cmd
}
