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

	"github.com/headgate-rls/headgate/backends"
)

func main() {
	os.Exit(run(context.Background(), arguments(os.Args), os.Stdin, os.Stdout, os.Stderr))
}

// arguments returns what the program is asked to do. Under the names of the reference's programs,
// as in manifests that run /bin/ratelimit, it is those.
func arguments(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	if as := names[filepath.Base(argv[0])]; as != nil {
		return as(argv[1:])
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
	answers := &answerWriter{Writer: out}
	root.SetOut(answers)
	root.SetErr(errOut)
	begun := false
	whenRun(root, func() { begun = true })
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && answers.err != nil {
		err = fmt.Errorf("cannot write the answer: %w", answers.err)
	}
	switch {
	case err == nil:
		return exitOK
	case !begun:
		err = inputError{usageError(err)}
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		err = errInterrupted
	}
	if errors.As(err, new(backends.NotLinkedError)) {
		err = fmt.Errorf("%w%s", err, stores)
	}
	if code := exitCode(0); !errors.As(err, &code) {
		fmt.Fprintf(errOut, "headgate: %v\n", err)
	}
	return codeOf(cmd, err)
}

func rootCommand() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "headgate",
		Short: "An external rate-limit service for Envoy",
		Long: `headgate answers Envoy's RateLimitService from YAML rules and keeps its
counters in a backend of your choice.

Try it:
  headgate serve --example                serve a built-in example from memory
  headgate ask example client=alice -n 7  ask the running service seven times
  headgate check rules/                   check rules before they go live`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return printVersion(cmd.OutOrStdout())
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVarP(&version, "version", "v", false, "print the version")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(commands()...)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		found, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = noCommand(found, rest)
		}
		return err
	}
	return root
}

// serviceCommands are in every build: they run the service and query it.
func serviceCommands() []*cobra.Command {
	return []*cobra.Command{serveCommand(), ratelimitCommand(), checkCommand(), captureCommand(), askCommand(),
		healthCommand(), topCommand(), explainCommand(), rulesCommand(), statusCommand(), coverageCommand(),
		reloadsCommand(), versionCommand()}
}
