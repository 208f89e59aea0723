package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// slotConfig is a config as the admin API has it.
type slotConfig struct {
	ConfigID      string          `json:"configId,omitempty"`
	ConfigName    string          `json:"configName"`
	MaxPerWindow  int64           `json:"maxPerWindow"`
	WindowSize    string          `json:"windowSize"`
	EffectiveFrom string          `json:"effectiveFrom,omitempty"`
	Scope         string          `json:"scope,omitempty"`
	Jitter        string          `json:"jitter,omitempty"`
	Calendar      json.RawMessage `json:"calendar,omitempty"`
}

// line describes the config on one line.
func (c *slotConfig) line() string {
	limit := fmt.Sprintf("max=%d", c.MaxPerWindow)
	if c.MaxPerWindow == 0 {
		limit = "paused"
	}
	parts := []string{c.ConfigName, limit, "window=" + c.WindowSize}
	for _, option := range []struct{ name, value string }{
		{"scope", c.Scope}, {"jitter", c.Jitter}, {"calendar", string(c.Calendar)}, {"since", c.EffectiveFrom}, {"id", c.ConfigID},
	} {
		if option.value != "" {
			parts = append(parts, option.name+"="+option.value)
		}
	}
	return strings.Join(parts, " ")
}

const (
	configPath  = "/admin/rate-limit/config"
	configsPath = "/admin/rate-limit/configs"
)

func slotsConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at and change the configs of a running service",
		Long: `Look at and change the configs of a running service, by its admin paths: with the
token in HEADGATE_ADMIN_TOKEN, or with a client certificate.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(configListCommand(), configGetCommand(), configSetCommand(), configPauseCommand())
	return cmd
}

func configListCommand() *cobra.Command {
	var api slotAPI
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print the active configs, a line each",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Configs []slotConfig `json:"configs"`
			}
			if err := api.call(cmd.Context(), http.MethodGet, configsPath, nil, &answer); err != nil {
				return err
			}
			for _, c := range answer.Configs {
				fmt.Fprintln(cmd.OutOrStdout(), c.line())
			}
			return nil
		},
	}
	api.define(cmd, adminAddress())
	return cmd
}

func configGetCommand() *cobra.Command {
	var api slotAPI
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Print a config",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := api.config(cmd.Context(), args[0])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), c.line())
			}
			return err
		},
	}
	api.define(cmd, adminAddress())
	return cmd
}

func configSetCommand() *cobra.Command {
	var api slotAPI
	var want slotConfig
	var calendar string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a config, or change what the flags name of one",
		Long: `Make a config, or change what the flags name of one; what they do not name stays as it
is. Slots that are assigned stay as they are. A config that is not there yet needs
--max and --window.`,
		Example: `  headgate slots config set default --max 100 --window PT4S
  headgate slots config set default --max 200
  headgate slots config set letters --calendar '{"zone": "Europe/Berlin", "open": ["mon-fri 09:00-17:00"]}'
  headgate slots config set letters --calendar ''`,
		Args: exactly(1),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Int64Var(&want.MaxPerWindow, "max", 0, "`events` that a window holds; 0 pauses the config")
	f.StringVar(&want.WindowSize, "window", "", "length of a window, as `duration` such as PT4S, PT1M or PT24H")
	f.StringVar(&want.Scope, "scope", "", "`name` of the counters that it shares with others; empty for its own")
	f.StringVar(&want.Jitter, "jitter", "", "how events are spread over a window: `random` or stratified")
	f.StringVar(&calendar, "calendar", "", "when windows are open, as `JSON`; empty for always")
	api.define(cmd, adminAddress())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if want.Calendar = json.RawMessage(calendar); calendar != "" && !json.Valid(want.Calendar) {
			return fmt.Errorf("--calendar: %q is not JSON", calendar)
		}
		return api.change(cmd.Context(), cmd.OutOrStdout(), args[0], func(c *slotConfig, missing error) error {
			for flag, set := range map[string]func(){
				"max":      func() { c.MaxPerWindow = want.MaxPerWindow },
				"window":   func() { c.WindowSize = want.WindowSize },
				"scope":    func() { c.Scope = want.Scope },
				"jitter":   func() { c.Jitter = want.Jitter },
				"calendar": func() { c.Calendar = want.Calendar },
			} {
				if f.Changed(flag) {
					set()
				}
			}
			if missing != nil && !(f.Changed("max") && f.Changed("window")) {
				return fmt.Errorf("%w; a new one needs --max and --window", missing)
			}
			return nil
		})
	}
	return cmd
}

func configPauseCommand() *cobra.Command {
	var api slotAPI
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Have a config take no events",
		Long: `Have a config take no events: requests are answered with 503 until it is set to a limit
again. Slots that are assigned stay as they are. What the limit was is printed.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			was := int64(0)
			err := api.change(cmd.Context(), out, args[0], func(c *slotConfig, missing error) error {
				if missing != nil {
					return missing
				}
				was, c.MaxPerWindow = c.MaxPerWindow, 0
				return nil
			})
			if err == nil && was > 0 {
				fmt.Fprintf(out, "to go on: headgate slots config set %s --max %d\n", args[0], was)
			}
			return err
		},
	}
	api.define(cmd, adminAddress())
	return cmd
}

func (a *slotAPI) config(ctx context.Context, name string) (c slotConfig, err error) {
	err = a.call(ctx, http.MethodGet, configPath+"?name="+url.QueryEscape(name), nil, &c)
	return c, err
}

// change reads a config, changes it and puts it, and prints what has become of it. If the
// config does not exist, edit gets the error as missing.
func (a *slotAPI) change(ctx context.Context, out io.Writer, name string, edit func(c *slotConfig, missing error) error) error {
	c, err := a.config(ctx, name)
	var failure *apiError
	if err != nil && !(errors.As(err, &failure) && failure.code == http.StatusNotFound) {
		return err
	}
	c.ConfigID, c.EffectiveFrom, c.ConfigName = "", "", name
	if err := edit(&c, err); err != nil {
		return err
	}
	var made slotConfig
	if err := a.call(ctx, http.MethodPost, configPath, &c, &made); err != nil {
		return err
	}
	fmt.Fprintln(out, made.line())
	return nil
}
