package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/san"
	"github.com/headgate-rls/headgate/internal/spell"
	"github.com/headgate-rls/headgate/limit"
)

// Resolve fills every flag of fs that the command line did not set from the
// environment (as os.Environ returns it), then from the file, and checks the
// result. All problems are reported; what has no effect is added to
// c.Warnings.
func Resolve(fs *pflag.FlagSet, c *Config, environ []string) error {
	env := newEnvironment(environ)
	errs := env.fill(fs)
	if c.File != "" {
		errs = append(errs, c.readFile(fs)...)
	}
	c.Warnings = append(c.Warnings, env.unknown(fs)...)
	c.warnOfOpenPorts()
	if len(errs) == 0 {
		errs = append(errs, negativeTimes(fs)...)
		errs = append(errs, c.check()...)
	}
	return errors.Join(errs...)
}

// fill sets the flags that the command line did not.
func (e environment) fill(fs *pflag.FlagSet) []error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || !isSetting(f.Name) {
			return
		}
		name := EnvName(f.Name)
		value, ok := e.lookup(name)
		if !ok {
			var err error
			if name, value, ok, err = fromEnv(f.Name, e.lookup); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
				return
			}
		}
		if !ok || (value == "" && f.Value.Type() == "stringArray") {
			return
		}
		if err := set(fs, f, strings.Split(value, ",")); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
		}
	})
	return errs
}

// set sets f to values; only a flag that may be repeated takes several.
func set(fs *pflag.FlagSet, f *pflag.Flag, values []string) error {
	if f.Value.Type() != "stringArray" {
		values = []string{strings.Join(values, ",")}
	}
	for _, v := range values {
		if err := fs.Set(f.Name, v); err != nil {
			return BadValue(f, v)
		}
	}
	return nil
}

// wants says for types of flags what a value looks like.
var wants = map[string]string{
	"bool":     "want true or false",
	"int":      "want a whole number",
	"uint32":   "want a whole number",
	"duration": "want a duration such as 500ms, 5s or 2m",
}

// BadValue returns the error about a value that f does not take.
func BadValue(f *pflag.Flag, value string) error {
	want := ""
	if w := wants[f.Value.Type()]; w != "" {
		want = ": " + w
	}
	return fmt.Errorf("%q is not a valid %s%s", value, f.Value.Type(), want)
}

// isSetting says whether a flag is a setting of the server. Commands have
// flags of their own beside, which neither the environment nor a file sets.
func isSetting(name string) bool { return slices.Contains(settings(), name) }

var settings = sync.OnceValue(Names)

// suggest names the setting that name may have meant.
func suggest(name string) string {
	if best := spell.Nearest(name, settings()); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// negativeTimes returns an error for every setting that is a negative time.
func negativeTimes(fs *pflag.FlagSet) []error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if isSetting(f.Name) && f.Value.Type() == "duration" && strings.HasPrefix(f.Value.String(), "-") {
			errs = append(errs, fmt.Errorf("--%s: %s: must not be negative", f.Name, f.Value))
		}
	})
	return errs
}

// SkipRules is the --rules-errors that starts without broken files.
const SkipRules = "skip"

func (c *Config) check() []error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	if _, ok := descriptors.ParseCharge(c.Charge); !ok {
		bad("charge", "%q is neither all_or_nothing nor each", c.Charge)
	}
	if _, ok := descriptors.ParseFailurePolicy(c.OnBackendError); !ok {
		bad("on-backend-error", "%q is none of allow, deny, error, local", c.OnBackendError)
	}
	if _, ok := descriptors.ParseOverloadPolicy(c.OnOverload); !ok {
		bad("on-overload", "%q is none of deny, allow, error", c.OnOverload)
	}
	if c.RulesErrors != "refuse" && c.RulesErrors != SkipRules {
		bad("rules-errors", "%q is neither refuse nor skip", c.RulesErrors)
	}
	if c.Transport != "unary" && c.Transport != "grpc" {
		bad("transport", "%q is neither unary nor grpc", c.Transport)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("grpc-tls-cert", "needs --grpc-tls-key, and the other way round")
	}
	if c.ClientCA != "" && c.TLSCert == "" {
		bad("grpc-client-ca", "needs --grpc-tls-cert and --grpc-tls-key")
	}
	if len(c.ClientSANs) > 0 && c.ClientCA == "" {
		bad("grpc-client-san", "needs --grpc-client-ca: without it clients show no certificate")
	}
	if _, err := san.Parse(c.ClientSANs); err != nil {
		bad("grpc-client-san", "%v", err)
	}
	if c.BackendTimeout <= 0 {
		bad("backend-timeout", "must be positive")
	}
	if c.Replicas < 1 {
		bad("replicas", "must be at least 1")
	}
	if c.LeaseTTL < limit.MinWindow || c.LeaseTTL > limit.MaxWindow {
		bad("lease-ttl", "%v is outside %v to ten years", c.LeaseTTL, limit.MinWindow)
	}
	if c.AccessLogs < 1 || c.AccessLogs > 1<<20 {
		bad("access-logs", "%d is outside 1 to %d", c.AccessLogs, 1<<20)
	}
	if c.AccessLogsPerPeer < 0 || c.AccessLogsPerPeer > c.AccessLogs {
		bad("access-logs-per-peer", "%d is outside 0 to --access-logs (%d)", c.AccessLogsPerPeer, c.AccessLogs)
	}
	if c.OwnerGrace < 100*time.Millisecond || c.OwnerGrace > time.Hour {
		bad("owner-grace", "%v is outside 100ms to 1h", c.OwnerGrace)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		bad("log-format", "%q is neither text nor json", c.LogFormat)
	}
	if _, ok := levels[strings.ToLower(c.LogLevel)]; !ok {
		bad("log-level", "%q is none of debug, info, warn, error", c.LogLevel)
	}
	if _, err := c.Permissions(); err != nil {
		bad("socket-mode", "%v", err)
	}
	if c.GRPC == "" {
		bad("grpc", "must not be empty: it is the service itself")
	}
	if c.Example && len(c.Rules) > 0 {
		bad("example", "serves the built-in rules and not those of --rules: give one of the two")
	}
	c.checkAddresses(bad)
	c.checkHeaders(bad)
	c.Slots.check(bad)
	c.Admin.check(bad)
	if c.Slots.Auth && c.Admin.Token == "" && c.Admin.ClientCA == "" {
		bad("slots-auth", "needs --admin-token or --admin-client-ca: without either nobody could use slots")
	}
	return errs
}

// ChargePolicy returns --charge as rules have it.
func (c *Config) ChargePolicy() descriptors.Charge {
	charge, _ := descriptors.ParseCharge(c.Charge)
	return charge
}

// FailurePolicy returns --on-backend-error as rules have it.
func (c *Config) FailurePolicy() descriptors.FailurePolicy {
	policy, _ := descriptors.ParseFailurePolicy(c.OnBackendError)
	return policy
}

// OverloadPolicy returns --on-overload as rules have it.
func (c *Config) OverloadPolicy() descriptors.FailurePolicy {
	policy, _ := descriptors.ParseOverloadPolicy(c.OnOverload)
	return policy
}

// Permissions returns --socket-mode, zero if it is not set.
func (c *Config) Permissions() (os.FileMode, error) {
	if c.SocketMode == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(c.SocketMode, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, fmt.Errorf("%q is not a mode from 0001 to 0777 in octal", c.SocketMode)
	}
	return os.FileMode(n), nil
}
