package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// Resolve fills every flag of fs that the command line did not set from the
// environment (as os.Environ returns it), then from the file, and checks the
// result. All problems are reported; what has no effect is added to
// c.Warnings.
func Resolve(fs *pflag.FlagSet, c *Config, environ []string) error {
	return ResolveWith(fs, c, environ, nil)
}

// A Value is what a setting gets that nothing else sets.
type Value struct {
	Flag   string
	Values []string // one, except for settings that may be repeated
	From   string   // where it comes from, for errors
}

// A Source returns values for settings that nothing before it has set, which given reports.
type Source func(given func(flag string) bool) ([]Value, error)

// ResolveWith is [Resolve] with a last source of values, unless that is nil: it is asked when the
// others have been read.
func ResolveWith(fs *pflag.FlagSet, c *Config, environ []string, last Source) error {
	err := c.program().resolve(fs, environ, &c.File, &c.Warnings, last)
	err = errors.Join(err, c.checkForeign(newEnvironment(environ)))
	c.warnOfOpenPorts()
	return err
}

// resolve is Resolve for the settings of any program; file is the one that --config
// names.
func (p program) resolve(fs *pflag.FlagSet, environ []string, file *string, warnings *[]string, last Source) error {
	env := newEnvironment(environ)
	errs := append(p.fill(env, fs), p.fillFamilies(env)...)
	if *file != "" {
		notes, wrong := p.readFile(*file, fs)
		errs = append(errs, wrong...)
		*warnings = append(*warnings, notes...)
	}
	if last != nil {
		errs = append(errs, fillLast(fs, last)...)
	}
	for _, text := range p.unknown(env, fs) {
		if last != nil { // what a misspelt variable should have beaten is in force
			errs = append(errs, errors.New(text))
		} else {
			*warnings = append(*warnings, text)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, p.check()...)
	}
	return errors.Join(errs...)
}

// fill sets the flags that the command line did not.
func (p program) fill(e environment, fs *pflag.FlagSet) []error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || !p.has(f.Name) {
			return
		}
		name := p.envName(f.Name)
		value, ok := e.lookup(name)
		if !ok {
			var err error
			if name, value, ok, err = p.fromEnv(f.Name, e.lookup); err != nil {
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

// fillLast sets the flags that nothing else has set.
func fillLast(fs *pflag.FlagSet, last Source) []error {
	values, err := last(fs.Changed)
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, v := range values {
		f := fs.Lookup(v.Flag)
		if f == nil || f.Changed {
			errs = append(errs, fmt.Errorf("%s: there is no setting %s to set", v.From, v.Flag))
			continue
		}
		if err := set(fs, f, v.Values); err != nil {
			errs = append(errs, fmt.Errorf("%s: --%s: %w", v.From, v.Flag, err))
		}
	}
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

// suggest names the setting that name may have meant.
func (p program) suggest(name string) string {
	if best := spell.Nearest(name, p.names()); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// check returns what is wrong with settings.
func (p program) check() []error {
	var errs []error
	owner := map[string]string{}
	for _, s := range p.rows {
		err := s.check()
		if err == nil && s.address != nil {
			err = claim(owner, s.address(), s.flag)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", s.flag, err))
		}
	}
	return errs
}

// claim notes that a setting names an address, and refuses one that another
// setting names.
func claim(owner map[string]string, address, flag string) error {
	if address == "" {
		return nil
	}
	if other := owner[address]; other != "" && !strings.HasSuffix(address, ":0") {
		return fmt.Errorf("%s is the address of --%s already: give it another one, or none", address, other)
	}
	owner[address] = flag
	return nil
}

// warnOfOpenPorts warns of ports that let callers around a guard of others.
func (c *Config) warnOfOpenPorts() {
	if c.ClientCA != "" && c.ClientAuth != IfGiven && reachable(c.HTTP) {
		c.Warnings = append(c.Warnings, "--grpc-client-ca guards the gRPC ports, but /json at --http "+c.HTTP+
			" decides for every caller without a certificate: bind it to 127.0.0.1, or close it with --http ''")
	}
}
