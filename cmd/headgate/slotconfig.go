package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/internal/app/client"
)

func slotsConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show and change the configs of a running service",
		Long: `Show and change the configs of a running service through its admin API, with the
token in HEADGATE_ADMIN_TOKEN or with a client certificate.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(configListCommand(), configGetCommand(), configSetCommand(), configPauseCommand())
	return cmd
}

func configListCommand() *cobra.Command {
	var api client.Slots
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print the active configs, one per line",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			configs, err := api.Configs(cmd.Context())
			for _, c := range configs {
				fmt.Fprintln(cmd.OutOrStdout(), c.Line())
			}
			return err
		},
	}
	defineSlotsClient(cmd, &api, client.AdminURL())
	return cmd
}

func configGetCommand() *cobra.Command {
	var api client.Slots
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Print a config",
		Args:  exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := api.Config(cmd.Context(), args[0])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), c.Line())
			}
			return notFound(err)
		},
	}
	defineSlotsClient(cmd, &api, client.AdminURL())
	return cmd
}

func configSetCommand() *cobra.Command {
	var api client.Slots
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
		Args: exactlyOne,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Int64Var(&want.MaxPerWindow, "max", 0, "most `events` in a window; 0 pauses the config")
	f.StringVar(&want.WindowSize, "window", "", "length of a window, as `duration` such as PT4S, PT1M or PT24H")
	f.StringVar(&want.Scope, "scope", "", "`name` of the counters that configs share; empty: the config has its own")
	f.StringVar(&want.Jitter, "jitter", "", "how to spread events over a window: `random` or stratified")
	f.StringVar(&want.MaxDelay, "max-delay", "", "longest wait for a slot, as `duration` such as PT10M; empty: no bound")
	f.StringVar(&calendar, "calendar", "", "when windows are open, as `JSON`; empty: always")
	defineSlotsClient(cmd, &api, client.AdminURL())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if want.Calendar = json.RawMessage(calendar); calendar != "" && !json.Valid(want.Calendar) {
			return inputError{fmt.Errorf("--calendar: %q is not JSON", calendar)}
		}
		if !slices.ContainsFunc([]string{"max", "window", "scope", "jitter", "max-delay", "calendar"}, f.Changed) {
			return inputError{errors.New("nothing to change: give --max, --window, --scope, --jitter, --max-delay or " +
				"--calendar")}
		}
		made, err := api.Change(cmd.Context(), args[0], func(c *client.Config, missing error) error {
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
			fmt.Fprintln(cmd.OutOrStdout(), made.Line())
		}
		return err
	}
	return cmd
}

func configPauseCommand() *cobra.Command {
	var api client.Slots
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Pause a config",
		Long: `Pause a config: its requests get 503 until its limit is set again. Assigned slots do not
change. The command prints the former limit.`,
		Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			was := int64(0)
			made, err := api.Change(cmd.Context(), args[0], func(c *client.Config, missing error) error {
				if missing != nil {
					return missing
				}
				was, c.MaxPerWindow = c.MaxPerWindow, 0
				return nil
			})
			if err != nil {
				return notFound(err)
			}
			fmt.Fprintln(out, made.Line())
			if was > 0 {
				fmt.Fprintf(out, "to resume: headgate slots config set %s --max %d\n", args[0], was)
			}
			return nil
		},
	}
	defineSlotsClient(cmd, &api, client.AdminURL())
	return cmd
}
