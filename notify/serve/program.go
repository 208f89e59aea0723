package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Settings are those of a program.
type Settings interface {
	// Resolve reads flags, environment and file.
	Resolve(fs *pflag.FlagSet, environ []string) error
	// Logger returns the log that the settings ask for.
	Logger(out io.Writer) *slog.Logger
}

// A Program is a command that serves until a signal ends it.
type Program[S Settings] struct {
	Name, Short string
	Version     string // set by the linker; empty: what the Go toolchain knows
	Define      func(fs *pflag.FlagSet) S
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
		Version:       p.version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.Flags().SortFlags = false
	settings := p.Define(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings.Resolve(cmd.Flags(), environ); err != nil {
			return err
		}
		return p.Serve(cmd.Context(), settings, settings.Logger(out), p.version())
	}
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	if err := cmd.ExecuteContext(ctx); err != nil && !Ended(ctx, err) {
		fmt.Fprintf(errOut, "%s: %v\n", p.Name, err)
		return 2
	}
	return 0
}

func (p Program[S]) version() string {
	if p.Version != "" {
		return p.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
