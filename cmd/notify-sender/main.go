// Command notify-sender sends the messages that notify-gateway has queued.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/config"
	"github.com/headgate-rls/headgate/notify/serve"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// run is the whole program, for tests as for main.
func run(ctx context.Context, args, environ []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks to end; a second one just ends.
	defer context.AfterFunc(ctx, stop)()
	cmd := &cobra.Command{
		Use:           "notify-sender",
		Short:         "Send queued messages",
		Version:       buildVersion(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.Flags().SortFlags = false
	conf := config.DefineNotifySender(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := conf.Resolve(cmd.Flags(), environ); err != nil {
			return err
		}
		return serve.Sender(cmd.Context(), conf, conf.Log.Logger(out, conf.Warnings), buildVersion())
	}
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	if err := cmd.ExecuteContext(ctx); err != nil && !serve.Ended(ctx, err) {
		fmt.Fprintf(errOut, "notify-sender: %v\n", err)
		return 2
	}
	return 0
}

// version is set by the linker (see Makefile).
var version = ""

// buildVersion returns the linked-in version, or what the Go toolchain knows.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
