package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// Settings are those of a program.
type Settings interface {
	// Program returns the table.
	Program() settings.Program
	// Unwise returns warnings of what is allowed and unwise.
	Unwise() []string
	// Logger returns the log that the settings ask for, and logs warnings.
	Logger(out io.Writer, warnings []string) *slog.Logger
}

// A Program is a command that serves until a signal ends it.
type Program[S Settings] struct {
	Name, Short string
	Version     string // set by the linker; empty: what the Go toolchain knows
	Settings    S      // gets the values
	Serve       func(ctx context.Context, settings S, log *slog.Logger, version string) error
}

// Run runs the program and returns its exit code: 0, or 2 after an error.
func (p Program[S]) Run(ctx context.Context, args, environ []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks to end; a second one just ends.
	defer context.AfterFunc(ctx, stop)()
	cmd := &cobra.Command{
		Use:           p.Name,
		Short:         p.Short,
		Version:       settings.Version(p.Version),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.Flags().SortFlags = false
	table := p.Settings.Program()
	table.Define(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		warnings, err := table.Resolve(cmd.Flags(), environ, nil)
		if err != nil {
			return err
		}
		settings.Outlive(out)
		log := p.Settings.Logger(out, append(warnings, p.Settings.Unwise()...))
		return p.Serve(cmd.Context(), p.Settings, log, settings.Version(p.Version))
	}
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	// The end of ctx asks the program to stop, which is not a failure.
	if err := cmd.ExecuteContext(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		fmt.Fprintf(errOut, "%s: %v\n", p.Name, err)
		return 2
	}
	return 0
}
