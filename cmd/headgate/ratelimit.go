package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/internal/app/compat"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// referenceName is the name of envoyproxy/ratelimit's program.
const referenceName = "ratelimit"

func ratelimitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   referenceName + " [--print-config]",
		Short: "Serve in place of envoyproxy/ratelimit, configured by its environment",
		Long: `Serve in place of envoyproxy/ratelimit: the settings come from the environment
variables of that program, such as REDIS_URL and RUNTIME_ROOT. docs/migrate.md
has a table of what becomes of each. HEADGATE_* variables, and the file that
HEADGATE_CONFIG names, beat them. A program called ratelimit does the same.

--print-config prints the settings that come of the environment, as a file for
headgate serve --config, with secrets hidden, and ends. Other arguments are
ignored with a warning, as manifests may have some.`,
		Example: `  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 headgate ` +
			`ratelimit --print-config`,
		// Arguments are those of another program: they must not be errors.
		DisableFlagParsing: true,
		Annotations:        map[string]string{drains: "yes"},
		RunE:               runRatelimit,
	}
}

func runRatelimit(cmd *cobra.Command, args []string) error {
	var ignored []string
	show := false
	for _, arg := range args {
		switch name, _, _ := strings.Cut(arg, "="); {
		case arg == "--print-config":
			show = true
		case arg == "--help" || arg == "-h":
			return cmd.Help()
		case arg == "--version":
			return printVersion(cmd.OutOrStdout())
		case strings.HasPrefix(name, "-"):
			ignored = append(ignored, name) // the value may be a secret
		default:
			ignored = append(ignored, "an argument")
		}
	}
	m, err := newRatelimitMode(os.Environ())
	if err != nil {
		return err
	}
	if len(ignored) > 0 {
		m.conf.Warnings = append(m.conf.Warnings, "arguments have no effect under the name ratelimit, and are ignored: "+
			strings.Join(ignored, " "))
	}
	if show {
		return m.print(cmd.OutOrStdout())
	}
	return m.serve(cmd)
}

func newRatelimitMode(environ []string) (*ratelimitMode, error) {
	m := &ratelimitMode{fs: pflag.NewFlagSet(referenceName, pflag.ContinueOnError)}
	m.conf = config.Define(m.fs)
	return m, m.resolve(environ)
}

func (m *ratelimitMode) serve(cmd *cobra.Command) error {
	settings.Outlive(cmd.ErrOrStderr())
	log := m.conf.Logger(cmd.ErrOrStderr())
	m.tell(log)
	for _, v := range m.res.Environment { // which OpenTelemetry's packages read themselves
		if err := os.Setenv(v.Name, v.Values[0]); err != nil {
			return err
		}
	}
	return server.Run(cmd.Context(), server.Config{Settings: m.conf, Log: log, Version: buildVersion()})
}

// A ratelimitMode is the settings that come of the reference's environment.
type ratelimitMode struct {
	fs   *pflag.FlagSet
	conf *config.Config
	res  *compat.Result
}

func (m *ratelimitMode) resolve(environ []string) error {
	err := config.Resolve(m.fs, m.conf, environ, func(given func(string) bool) ([]settings.Value, error) {
		var err error
		m.res, err = compat.Translate(environ, given)
		var list []settings.Value
		for _, s := range m.res.Settings {
			list = append(list, settings.Value{Flag: s.Name, Values: s.Values, From: origin(s.From)})
		}
		return list, err
	})
	if err != nil {
		return err
	}
	m.conf.Warnings = append(m.conf.Warnings, m.res.Warnings...)
	for flag, url := range map[string]string{"backend": m.conf.Backend, "backend-per-second": m.conf.PerSecond} {
		if url == "" {
			continue
		}
		if _, err := stack.Caps(url); err != nil {
			return fmt.Errorf("%s: %w", m.origins()[flag], err)
		}
	}
	return nil
}

// origin says which variables a value was made of.
func origin(names []string) string {
	if len(names) == 0 {
		return "as envoyproxy/ratelimit"
	}
	return strings.Join(names, ", ")
}

// origins says for each setting where its value comes from.
func (m *ratelimitMode) origins() map[string]string {
	all := map[string]string{}
	table := config.Settings()
	for _, name := range table.Names() {
		all[name] = "HEADGATE_CONFIG"
		if _, ok := os.LookupEnv(table.EnvName(name)); ok {
			all[name] = table.EnvName(name)
		}
	}
	for _, s := range m.res.Settings {
		all[s.Name] = origin(s.From)
	}
	return all
}

// print writes the settings as a file for `headgate serve --config`.
func (m *ratelimitMode) print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, "# headgate serve --config FILE has the same settings. Secrets are hidden as ***.")
	origins := m.origins()
	for _, s := range config.Settings().Show(m.fs) {
		value := strconv.Quote(strings.Join(s.Values, ""))
		if s.Many {
			quoted := make([]string, len(s.Values))
			for i, v := range s.Values {
				quoted[i] = strconv.Quote(v)
			}
			value = "[" + strings.Join(quoted, ", ") + "]"
		}
		if s.Flag == "config" {
			fmt.Fprintf(&b, "# settings of the file %s are among these\n", value)
			continue
		}
		fmt.Fprintf(&b, "%s: %s # %s\n", s.Flag, value, origins[s.Flag])
	}
	for _, v := range m.res.Environment {
		fmt.Fprintf(&b, "# environment: %s # %s\n", strconv.Quote(v.Name+"="+v.Values[0]), origin(v.From))
	}
	for _, w := range m.conf.Warnings {
		fmt.Fprintln(&b, "# warning:", oneLine(w))
	}
	for _, n := range m.res.Notes {
		fmt.Fprintln(&b, "# note:", oneLine(n))
	}
	if len(m.res.Ignored) > 0 {
		fmt.Fprintln(&b, "# no effect, and none needed:", strings.Join(m.res.Ignored, " "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// oneLine keeps a text within its comment.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// tell logs what came of the environment.
func (m *ratelimitMode) tell(log *slog.Logger) {
	var list []string
	for _, s := range config.Settings().Show(m.fs) {
		list = append(list, s.Flag+"="+strings.Join(s.Values, ","))
	}
	for _, v := range m.res.Environment {
		list = append(list, v.Name+"="+v.Values[0])
	}
	log.Info("settings from the environment of envoyproxy/ratelimit", "settings", list)
	for _, n := range m.res.Notes {
		log.Info("about the settings", "note", n)
	}
	if len(m.res.Ignored) > 0 {
		log.Debug("ignored variables of envoyproxy/ratelimit", "variables", m.res.Ignored)
	}
}
