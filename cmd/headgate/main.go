// Command headgate is an external rate-limit service for Envoy.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	_ "time/tzdata" // calendars must not depend on what the host has

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(context.Background(), arguments(os.Args), os.Stdin, os.Stdout, os.Stderr))
}

// arguments returns what the program is asked to do. Under the name of the reference's program,
// as in manifests that run /bin/ratelimit, it is that.
func arguments(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	if filepath.Base(argv[0]) == referenceName {
		return append([]string{referenceName}, argv[1:]...)
	}
	return argv[1:]
}

var errInterrupted = errors.New("interrupted")

// run is the whole program, for tests as for main.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks to end, as the drain does; a second one just ends.
	defer context.AfterFunc(ctx, stop)()
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	begun := false
	whenRun(root, func() { begun = true })
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case !begun:
		err = inputError{err}
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		err = errInterrupted
	}
	if code := exitCode(0); !errors.As(err, &code) {
		fmt.Fprintf(errOut, "headgate: %v\n", err)
	}
	return codeOf(cmd, err)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "An external rate-limit service for Envoy",
		Long: `headgate answers Envoy's RateLimitService from YAML rules and keeps its
counters in a backend of your choice.

Try it:
  headgate serve --example                serve a built-in example from memory
  headgate ask example client=alice -n 7  ask the running service seven times
  headgate check rules/                   check rules before they go live`,
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("headgate {{.Version}}\n") // as the command prints it
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(serveCommand(), ratelimitCommand(), checkCommand(), testCommand(), replayCommand(), captureCommand(),
		diffCommand(), askCommand(), healthCommand(), topCommand(), explainCommand(), rulesCommand(), statusCommand(),
		coverageCommand(), reloadsCommand(), envoyCommand(), slotCommand(), slotsCommand(), policyCommand(), migrateCommand(),
		versionCommand())
	return root
}
