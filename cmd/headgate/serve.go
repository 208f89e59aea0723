package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/app/compat"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
	"github.com/headgate-rls/headgate/internal/kit/settings"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve rate-limit decisions",
		Long: `Serve rate-limit decisions from the rules in --rules, and reload the rules when
their files change.

Every flag can also be set in the environment (--log-level as
HEADGATE_LOG_LEVEL; several values separated by commas) and in the YAML file
that --config names (log-level: warn). A flag beats the environment, which
beats the file. Put secrets, such as the password in --backend, into the
environment or the file: other users of the machine can see flags.

Without any setting, but with variables of envoyproxy/ratelimit such as
RUNTIME_ROOT and REDIS_URL, serve does what headgate ratelimit does, and logs
which variables are the reason.`,
		Example: `  headgate serve --example
  headgate serve --rules rules/ --backend redis://localhost:6379
  headgate serve --rules rules/ --grpc unix:/run/headgate/rls.sock`,
		Args:        noArgs,
		Annotations: map[string]string{drains: "yes"},
	}
	cmd.Flags().SortFlags = false
	conf := config.Define(cmd.Flags())
	completeSettings(cmd)
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Usage:\n  %s\n\nExamples:\n%s\n\n%s", cmd.UseLine(), cmd.Example,
			config.Settings().Usage(cmd.Flags()))
		return err
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		inPlace, note := inPlaceOfReference(cmd.Flags(), os.Environ())
		if inPlace {
			m, err := newRatelimitMode(os.Environ())
			if err != nil {
				return inputError{fmt.Errorf("%s: %w", note, err)}
			}
			m.conf.Warnings = append(m.conf.Warnings, note)
			return m.serve(cmd)
		}
		if note != "" {
			conf.Warnings = append(conf.Warnings, note)
		}
		if err := config.Resolve(cmd.Flags(), conf, os.Environ(), nil); err != nil {
			return inputError{err}
		}
		settings.Outlive(cmd.ErrOrStderr())
		return server.Run(cmd.Context(), server.Config{
			Settings: conf, Log: conf.Logger(cmd.ErrOrStderr()), Version: buildVersion(),
		})
	}
	return cmd
}

// inPlaceOfReference reports whether serve, which the image runs if nothing names a command, stands in for
// envoyproxy/ratelimit, and what to tell of that: its variables are set, and nothing of headgate's is. Where variables
// could be meant for both, headgate's own settings are in force, and the note says so.
func inPlaceOfReference(fs *pflag.FlagSet, environ []string) (inPlace bool, note string) {
	names, saysRules := compat.Own(environ)
	if len(names) == 0 {
		return false, ""
	}
	list := strings.Join(names, ", ")
	if own := ownSetting(fs, environ); own != "" {
		return false, "variables of envoyproxy/ratelimit have no effect, because " + own + " is set: " + list +
			"; headgate ratelimit, or a program called ratelimit, reads both"
	}
	if _, err := os.Stat(config.DefaultRules); err == nil && !saysRules {
		return false, "variables of envoyproxy/ratelimit have no effect, because there are rules in ./" +
			config.DefaultRules + ": " + list + "; headgate ratelimit, or RUNTIME_ROOT, takes them, HEADGATE_BACKEND is " +
			"headgate's own variable"
	}
	return true, "serving in place of envoyproxy/ratelimit, because its variables are set, and none of headgate's: " +
		list + "; any flag or HEADGATE_ variable, such as HEADGATE_RULES, ends that"
}

// ownSetting returns the name of a setting that somebody has set, or "".
func ownSetting(fs *pflag.FlagSet, environ []string) (name string) {
	fs.Visit(func(f *pflag.Flag) { name = "--" + f.Name })
	table := config.Settings()
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(key, config.Prefix+"_") && !table.Ignores(key, value) {
			name = key
		}
	}
	return name
}
