package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// flagError says in one line which flag is wrong, and what may have been meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &bad) && isEnum(bad.GetFlag()):
		return fmt.Errorf("--%s %w", bad.GetFlag().Name, errors.Unwrap(bad))
	case errors.As(err, &bad):
		return fmt.Errorf("--%s: %w", bad.GetFlag().Name, settings.BadValue(bad.GetFlag(), bad.GetValue()))
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if letters := unknown.GetSpecifiedShortnames(); letters != "" {
			name, _, _ = strings.Cut(letters, "=") // -rules for --rules
		}
		return fmt.Errorf("%w%s", err, didYouMean("--", name, flagNames(cmd)))
	}
	return err
}

// bothGiven finds cobra's words for flags of which a command takes one. In its own words they are a riddle.
var bothGiven = regexp.MustCompile(`^if any flags in the group .* none of the others can be; \[(.*)\] were all set$`)

// usageError says in plain words what is wrong with the flags together.
func usageError(err error) error {
	if m := bothGiven.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("--%s: give one of them only", strings.ReplaceAll(m[1], " ", ", --"))
	}
	return err
}

func isEnum(f *pflag.Flag) bool {
	_, ok := f.Value.(*enum)
	return ok
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

func didYouMean(prefix, word string, known []string) string {
	if best := spell.Nearest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %s%s?", prefix, best)
	}
	return ""
}

// noArgs refuses arguments that are not flags. The value of a switch is the one
// that is left over most often.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case args[0] == "true" || args[0] == "false":
		return fmt.Errorf("%q is not part of a flag: a switch is set as in --shadow-mode=%s", args[0], args[0])
	}
	return fmt.Errorf("%q: %s takes flags only, and they begin with --", args[0], cmd.CommandPath())
}

// atLeast refuses fewer arguments.
func atLeast(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return fmt.Errorf("arguments are missing: %s", cmd.UseLine())
		}
		return nil
	}
}

// exactlyOne refuses fewer or more arguments than one.
func exactlyOne(cmd *cobra.Command, args []string) error {
	if err := atMostOne(cmd, args); err != nil {
		return err
	}
	return atLeast(1)(cmd, args)
}

func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%q is one argument too many: %s", args[1], cmd.UseLine())
	}
	return nil
}

// noCommand refuses a word that is not the name of a command below cmd.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), didYouMean("", args[0], names))
}

// defineClient adds the flags of a command that asks a running service over gRPC.
func defineClient(cmd *cobra.Command, opt *client.Options) {
	f := cmd.Flags()
	f.StringVar(&opt.Addr, "addr", client.LocalAddress("grpc", "127.0.0.1:8081"),
		"`address` of the service: host:port, a URL, unix:PATH or unix:@NAME; HEADGATE_GRPC changes the default")
	f.DurationVar(&opt.Timeout, "timeout", time.Second, "longest wait for an answer")
	f.BoolVar(&opt.TLS, "tls", false, "use TLS")
	f.StringVar(&opt.CA, "tls-ca", "", "`file` with trusted CA certificates; implies --tls (default: the system's)")
	f.StringVar(&opt.Cert, "tls-cert", "", "client certificate `file`; implies --tls")
	f.StringVar(&opt.Key, "tls-key", "", "client key `file`")
	f.StringVar(&opt.ServerName, "tls-server-name", "",
		"expected `name` in the service's certificate (default: the host of --addr)")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
}

// defineAPI adds the flags of a command that asks the HTTP API; url is where it is
// unless they say otherwise.
func defineAPI(cmd *cobra.Command, api *client.API, url string) {
	f := cmd.Flags()
	f.StringVar(&api.Addr, "addr", url,
		"`URL` of the service, or host:port; the service's own settings in the environment change the default")
	f.DurationVar(&api.Timeout, "timeout", 10*time.Second, "longest wait for an answer")
	f.StringVar(&api.CA, "tls-ca", "", "`file` with trusted CA certificates (default: the system's)")
	f.StringVar(&api.Cert, "tls-cert", "", "client certificate `file`")
	f.StringVar(&api.Key, "tls-key", "", "client key `file`")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
}

// defineAdminAPI adds the flags of a command that asks the admin API, and says so in its help.
func defineAdminAPI(cmd *cobra.Command, api *client.API) {
	cmd.Long += "\n\nIt asks the admin API, with the token in HEADGATE_ADMIN_TOKEN or with a client certificate."
	defineAPI(cmd, api, client.AdminURL())
}
