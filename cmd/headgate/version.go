package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// version is set by the linker (see Makefile).
var version = ""

func versionCommand() *cobra.Command {
	var format *format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			answer := map[string]string{"version": buildVersion()}
			_ = printVersion(format.writer(cmd.OutOrStdout(), answer)) // fails only if the reader is gone
		},
	}
	format = defineFormat(cmd)
	return cmd
}

func printVersion(out io.Writer) error {
	_, err := fmt.Fprintln(out, "headgate", buildVersion())
	return err
}

// buildVersion returns the linked-in version, or what the Go toolchain knows.
func buildVersion() string { return settings.Version(version) }
