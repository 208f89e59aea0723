//go:build !rlsonly

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
	"github.com/headgate-rls/headgate/slots"
)

// slotDatabase are the settings that say where the slot database is.
var slotDatabase = []string{"slots", "slots-username", "slots-password"}

// settingsCommand makes a command with the same settings as serve, of which it shows those that are
// named, and those of the configuration and the log.
func settingsCommand(cmd *cobra.Command, shown []string, run func(ctx context.Context, conf *config.Config,
	log *slog.Logger) error) *cobra.Command {
	conf := config.Define(cmd.Flags())
	shown = append([]string{"config", "log-level", "log-format"}, shown...)
	for _, f := range config.Settings().Names() {
		if !slices.Contains(shown, f) {
			_ = cmd.Flags().MarkHidden(f)
		}
	}
	completeSettings(cmd)
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := config.Resolve(cmd.Flags(), conf, os.Environ(), nil); err != nil {
			return inputError{err}
		}
		err := run(cmd.Context(), conf, conf.Logger(cmd.ErrOrStderr()))
		if errors.As(err, new(*slots.StoreError)) && !strings.HasPrefix(err.Error(), "--") {
			return fmt.Errorf("--slots: %w", err)
		}
		return err
	}
	return cmd
}

// eitherCommand makes a command that works on a database or on a running service. It uses the database that the first
// of the settings names, unless --addr is given. It passes nil settings to run if it uses the service.
func eitherCommand(cmd *cobra.Command, database []string, api *client.API, count cobra.PositionalArgs,
	run func(ctx context.Context, conf *config.Config, log *slog.Logger, args []string) error) *cobra.Command {
	var given []string
	settingsCommand(cmd, database, func(ctx context.Context, conf *config.Config, log *slog.Logger) error {
		service, named := cmd.Flags().Changed("addr"), cmd.Flags().Lookup(database[0]).Value.String() != ""
		if named && !service {
			return run(ctx, conf, log, given)
		}
		err := run(ctx, nil, log, given)
		if err != nil && !service && !errors.As(err, new(*client.Refusal)) && !errors.As(err, new(*fs.PathError)) &&
			codeOf(cmd, err) == exitError {
			err = fmt.Errorf("%w; --%s names the database instead", err, database[0])
		}
		return err
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		given = args
		return count(cmd, args)
	}
	defineAPI(cmd, api, client.AdminURL())
	cmd.MarkFlagsMutuallyExclusive("addr", database[0])
	return cmd
}

func slotsCommand() *cobra.Command {
	return groupCommand(&cobra.Command{Use: "slots", Short: "Ask for slots, change configs, check the slot database"},
		slotsAssignCommand(), slotsConfigCommand(), reconcileCommand())
}

// groupCommand makes a command that only has others below it.
func groupCommand(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = noCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

// reconcileBatch is how many windows are compared at once.
const reconcileBatch = 500

func reconcileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare the counters of windows with the slots in them",
		Long: `Compare the counters of windows with the slots scheduled in them, and print the
windows that differ, for example after restoring a backup or editing tables by hand.
--repair corrects the counters, each under a lock; the service can keep running.

The exit code is 0 if no window differs or all were repaired, and 3 if some differ.`,
		Example: `  headgate slots reconcile --slots postgres://headgate@db/payments
  headgate slots reconcile --from 2026-11-21T00:00:00Z --repair`,
	}
	from := cmd.Flags().Time("from", time.Time{}, rfc3339,
		"`time` of the first window to compare, RFC 3339 (default: all)")
	to := cmd.Flags().Time("to", time.Time{}, rfc3339,
		"`time` of the first window after those to compare, RFC 3339 (default: all)")
	format := defineFormat(cmd)
	repair := cmd.Flags().Bool("repair", false, "correct the counters")
	return settingsCommand(cmd, slotDatabase, func(ctx context.Context, conf *config.Config, log *slog.Logger) error {
		if conf.Slots.URL == "" {
			return inputError{errors.New("no slot database: set --slots, HEADGATE_SLOTS, or slots: in the --config file")}
		}
		db, err := server.OpenDatabase(&conf.Slots, server.Existing, log)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := db.Look(ctx); err != nil {
			return err
		}
		return reconcile(ctx, format.list(cmd.OutOrStdout()), db, spanOf(*from, *to), *repair)
	})
}

type timeSpan struct{ fromMs, toMs int64 }

// spanOf returns the span between two times. A zero time is no bound.
func spanOf(from, to time.Time) timeSpan {
	if from.IsZero() {
		from = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if to.IsZero() {
		to = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return timeSpan{from.UnixMilli(), to.UnixMilli()}
}

// A wrongWindow is a window whose counter is wrong, in JSON.
type wrongWindow struct {
	Scope    string    `json:"scope"`
	SizeMs   int64     `json:"sizeMs"`
	Window   time.Time `json:"window"`
	Counted  int64     `json:"counted"`
	Slots    int64     `json:"slots"`
	Repaired bool      `json:"repaired"`
}

func reconcile(ctx context.Context, w *lister, store slots.Store, span timeSpan, repair bool) error {
	defer func() { _ = w.end() }()
	var wrong, repaired int
	var after *slots.WindowKey
	for {
		drifts, next, err := store.Drift(ctx, span.fromMs, span.toMs, after, reconcileBatch, repair)
		if err != nil {
			return err
		}
		for _, d := range drifts {
			wrong++
			done := ""
			if d.Repaired {
				repaired++
				done = " repaired"
			}
			row := wrongWindow{d.Scope, d.SizeMs, time.UnixMilli(d.StartMs).UTC(), d.Count, d.Slots, d.Repaired}
			fmt.Fprintf(w.text, "%s size=%v window=%s counted=%d slots=%d%s\n", d.Scope,
				time.Duration(d.SizeMs)*time.Millisecond, row.Window.Format(time.RFC3339Nano), d.Count, d.Slots, done)
			if err := w.write(&row); err != nil {
				return err
			}
		}
		if next == nil {
			break
		}
		after = next
	}
	if repaired > 0 {
		// Replicas have old counts in their caches.
		if _, err := store.Flush(ctx); err != nil {
			return fmt.Errorf("the windows are repaired, but replicas may still have the old counts in their caches: %w", err)
		}
	}
	fmt.Fprintf(w.text, "%d windows differ, %d repaired\n", wrong, repaired)
	return exitIf(wrong > repaired, exitNo)
}
