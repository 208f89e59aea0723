package config

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/spell"
	"github.com/headgate-rls/headgate/limit"
)

// EnvName returns the environment variable of a flag.
func EnvName(flag string) string {
	return "HEADGATE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Resolve fills every flag of fs that the command line did not set from the
// environment, then from the file, and checks the result. All problems are
// reported.
func Resolve(fs *pflag.FlagSet, c *Config, lookup func(string) (string, bool)) error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		name := EnvName(f.Name)
		value, ok := lookup(name)
		if !ok {
			var err error
			if name, value, ok, err = fromEnv(f.Name, lookup); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
				return
			}
		}
		if !ok || f.Changed || (value == "" && f.Value.Type() == "stringArray") {
			return
		}
		if err := set(fs, f, strings.Split(value, ",")); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
		}
	})
	if c.File != "" {
		errs = append(errs, c.readFile(fs)...)
	}
	if len(errs) == 0 {
		errs = append(errs, c.check()...)
	}
	return errors.Join(errs...)
}

// set sets f to values; only a flag that may be repeated takes several.
func set(fs *pflag.FlagSet, f *pflag.Flag, values []string) error {
	if f.Value.Type() != "stringArray" {
		values = []string{strings.Join(values, ",")}
	}
	for _, v := range values {
		if err := fs.Set(f.Name, v); err != nil {
			return fmt.Errorf("%q is not a valid %s", v, f.Value.Type())
		}
	}
	return nil
}

const maxFileSize = 1 << 20

// readFile sets the flags that the YAML file names and nothing before it did.
func (c *Config) readFile(fs *pflag.FlagSet) []error {
	path := c.File
	info, err := os.Stat(path)
	if err != nil {
		return []error{fmt.Errorf("read configuration: %w", err)}
	}
	if info.Size() > maxFileSize {
		return []error{fmt.Errorf("%s: configuration of %d bytes, at most %d", path, info.Size(), maxFileSize)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return []error{fmt.Errorf("read configuration: %w", err)}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return []error{fmt.Errorf("%s: %w", path, err)}
	}
	if len(doc.Content) == 0 {
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("%s:%d:%d: expected settings as `name: value`", path, root.Line, root.Column)}
	}
	var errs []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		name, value := root.Content[i], root.Content[i+1]
		list, others := properties(name, value)
		if !others {
			list = []property{{name.Value, name, value}}
		}
		for _, p := range list {
			if err := c.setProperty(fs, p, others); err != nil {
				errs = append(errs, fmt.Errorf("%s:%d:%d: %s: %w", path, p.key.Line, p.key.Column, p.name, err))
			}
		}
	}
	return errs
}

// setProperty sets one flag; with others, by another program's name for it.
func (c *Config) setProperty(fs *pflag.FlagSet, p property, others bool) error {
	if !others {
		return setFromFile(fs, p.name, p.value)
	}
	a, ok := findAlias(p.name)
	switch {
	case !ok:
		return errors.New("no such setting")
	case a.flag == "":
		c.Warnings = append(c.Warnings, p.name+" is ignored: "+a.note)
		return nil
	case p.value.Kind != yaml.ScalarNode:
		return errors.New("takes a plain value")
	}
	text, err := a.value(p.value.Value)
	if err != nil {
		return err
	}
	value := *p.value
	value.Value = text
	return setFromFile(fs, a.flag, &value)
}

func setFromFile(fs *pflag.FlagSet, name string, value *yaml.Node) error {
	f := fs.Lookup(name)
	if f == nil || name == "config" || name == "help" {
		return fmt.Errorf("no such setting%s", suggest(fs, name))
	}
	var values []string
	switch value.Kind {
	case yaml.ScalarNode:
		values = []string{value.Value}
	case yaml.SequenceNode:
		if f.Value.Type() != "stringArray" {
			return errors.New("takes one value, not a list")
		}
		for _, v := range value.Content {
			values = append(values, v.Value)
		}
	default:
		return errors.New("takes a plain value")
	}
	if f.Changed {
		return nil
	}
	return set(fs, f, values)
}

// suggest names the flag that name may have meant.
func suggest(fs *pflag.FlagSet, name string) string {
	var known []string
	fs.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if best := spell.Nearest(name, known); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

func (c *Config) check() []error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	if _, ok := descriptors.ParseCharge(c.Charge); !ok {
		bad("charge", "%q is neither all_or_nothing nor each", c.Charge)
	}
	if _, ok := descriptors.ParseFailurePolicy(c.OnBackendError); !ok {
		bad("on-backend-error", "%q is none of allow, deny, local", c.OnBackendError)
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
	if c.BackendTimeout <= 0 {
		bad("backend-timeout", "must be positive")
	}
	if c.Replicas < 1 {
		bad("replicas", "must be at least 1")
	}
	if c.LeaseTTL < limit.MinWindow || c.LeaseTTL > limit.MaxWindow {
		bad("lease-ttl", "%v is outside %v to ten years", c.LeaseTTL, limit.MinWindow)
	}
	if c.OwnerGrace < 100*time.Millisecond || c.OwnerGrace > time.Hour {
		bad("owner-grace", "%v is outside 100ms to 1h", c.OwnerGrace)
	}
	if c.DeadlineMargin < 0 {
		bad("deadline-margin", "must not be negative")
	}
	if c.DrainDelay < 0 || c.DrainTimeout < 0 {
		bad("drain-delay", "drain times must not be negative")
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
	c.Slots.check(bad)
	c.Admin.check(bad)
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
