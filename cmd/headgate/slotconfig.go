//go:build !rlsonly

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
)

func slotsConfigCommand() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "config",
		Short: "Show and change the configs of slots",
		Long: `Show and change the configs in the database that --slots or HEADGATE_SLOTS names; with --addr,
or where no setting names a database, those of a running service by its admin API, with the
token in HEADGATE_ADMIN_TOKEN or with a client certificate. A change is in force in every
service within a quarter of a second.`,
	}, configListCommand(), configGetCommand(), configSetCommand(), configPauseCommand())
}

// configCommand makes a command that works on the configs in a database of slots, or on those of a running service.
func configCommand(cmd *cobra.Command, count cobra.PositionalArgs,
	run func(ctx context.Context, api *client.API, args []string) error) *cobra.Command {
	var api client.API
	return eitherCommand(cmd, slotDatabase, &api, count, func(ctx context.Context, conf *config.Config, log *slog.Logger,
		args []string) error {
		if conf == nil {
			return run(ctx, &api, args)
		}
		handler, db, err := server.LocalSlots(ctx, &conf.Slots, log)
		if err != nil {
			return err
		}
		defer db.Close()
		api.Via = client.Local{Handler: handler}
		return run(ctx, &api, args)
	})
}

func configListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Print the active configs, one per line"}
	format := defineFormat(cmd)
	return configCommand(cmd, noArgs, func(ctx context.Context, api *client.API, _ []string) error {
		configs, err := api.Configs(ctx)
		if configs == nil {
			return err
		}
		out := format.writer(cmd.OutOrStdout(), configs)
		for _, c := range configs {
			fmt.Fprintln(out, c.Line())
		}
		return err
	})
}

func configGetCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "get NAME", Short: "Print a config"}
	format := defineFormat(cmd)
	return configCommand(cmd, exactlyOne, func(ctx context.Context, api *client.API, args []string) error {
		c, err := api.Config(ctx, args[0])
		if err == nil {
			fmt.Fprintln(format.writer(cmd.OutOrStdout(), c), c.Line())
		}
		return notFound(err)
	})
}

func configSetCommand() *cobra.Command {
	var want client.Config
	var calendar string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or change a config",
		Long: `Create a config, or change the fields of one for which there is a flag; the other fields
keep their values. Assigned slots do not change. A new config needs --max and --window.`,
		Example: `  headgate slots config set default --max 100 --window PT4S
  headgate slots config set default --max 200
  headgate slots config set letters --calendar '{"zone": "Europe/Berlin", "open": ["mon-fri 09:00-17:00"]}'
  headgate slots config set letters --calendar ''`,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Int64Var(&want.MaxPerWindow, "max", 0, "most `events` in a window; 0 pauses the config")
	f.StringVar(&want.WindowSize, "window", "", "length of a window, as `duration` such as PT4S, PT1M or PT24H")
	f.StringVar(&want.Scope, "scope", "", "`name` of the counters that configs share; empty: the config has its own")
	f.StringVar(&want.Jitter, "jitter", "", "how to spread events over a window: `random` or stratified")
	complete(cmd, "jitter", "random", "stratified")
	f.StringVar(&want.MaxDelay, "max-delay", "", "longest wait for a slot, as `duration` such as PT10M; empty: no bound")
	f.StringVar(&calendar, "calendar", "", "when windows are open, as `JSON`; empty: always")
	format := defineFormat(cmd)
	return configCommand(cmd, exactlyOne, func(ctx context.Context, api *client.API, args []string) error {
		if want.Calendar = json.RawMessage(calendar); calendar != "" && !json.Valid(want.Calendar) {
			return inputError{fmt.Errorf("--calendar: %q is not JSON", calendar)}
		}
		if !slices.ContainsFunc([]string{"max", "window", "scope", "jitter", "max-delay", "calendar"}, f.Changed) {
			return inputError{errors.New("nothing to change: give --max, --window, --scope, --jitter, --max-delay or " +
				"--calendar")}
		}
		made, err := api.Change(ctx, args[0], func(c *client.Config, missing error) error {
			for flag, set := range map[string]func(){
				"max":       func() { c.MaxPerWindow = want.MaxPerWindow },
				"window":    func() { c.WindowSize = want.WindowSize },
				"scope":     func() { c.Scope = want.Scope },
				"jitter":    func() { c.Jitter = want.Jitter },
				"max-delay": func() { c.MaxDelay = want.MaxDelay },
				"calendar":  func() { c.Calendar = want.Calendar },
			} {
				if f.Changed(flag) {
					set()
				}
			}
			if missing != nil && !(f.Changed("max") && f.Changed("window")) {
				return inputError{fmt.Errorf("%w; a new one needs --max and --window", missing)}
			}
			return nil
		})
		if err == nil {
			fmt.Fprintln(format.writer(cmd.OutOrStdout(), made), made.Line())
		}
		return err
	})
}

func configPauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Pause a config",
		Long: `Pause a config: its requests get 503 until its limit is set again. Assigned slots do not
change. The command prints the former limit.`,
	}
	format := defineFormat(cmd)
	return configCommand(cmd, exactlyOne, func(ctx context.Context, api *client.API, args []string) error {
		was := int64(0)
		made, err := api.Change(ctx, args[0], func(c *client.Config, missing error) error {
			if missing != nil {
				return missing
			}
			was, c.MaxPerWindow = c.MaxPerWindow, 0
			return nil
		})
		if err != nil {
			return notFound(err)
		}
		out := format.writer(cmd.OutOrStdout(), struct {
			client.Config
			Was int64 `json:"maxPerWindowBefore"`
		}{made, was})
		fmt.Fprintln(out, made.Line())
		if was > 0 {
			fmt.Fprintf(out, "to resume: headgate slots config set %s --max %d\n", args[0], was)
		}
		return nil
	})
}
