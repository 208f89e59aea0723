package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// A Program has a table of settings.
type Program struct {
	Prefix  string // of its environment variables
	Rows    []Setting
	Ignored []Alias // settings of other programs that have no effect, or are errors
	Family  Family
}

// A Family is variables whose names begin with a prefix, such as tokens that have names. Read takes
// the rest of a name, and the value.
type Family struct {
	Prefix string
	Read   func(name, value string) error
}

func (f Family) has(variable string) bool {
	return f.Prefix != "" && strings.HasPrefix(variable, f.Prefix)
}

// Define declares a flag for every setting.
func (p Program) Define(fs *pflag.FlagSet) {
	for _, s := range p.Rows {
		s.define(fs)
	}
}

// Names returns the names of all settings, in the order of the table.
func (p Program) Names() []string {
	names := make([]string, len(p.Rows))
	for i, s := range p.Rows {
		names[i] = s.Name
	}
	return names
}

// EnvName returns the environment variable of a setting.
func (p Program) EnvName(name string) string { return EnvName(p.Prefix, name) }

// EnvName returns the environment variable of a setting of a program with this prefix.
func EnvName(prefix, name string) string {
	return prefix + "_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// A Value is what a setting gets that nothing else sets.
type Value struct {
	Flag   string
	Values []string // one, except for settings that may be repeated
	From   string   // where it comes from, for errors
}

// A Source returns values for settings that nothing before it has set, which given reports.
type Source func(given func(flag string) bool) ([]Value, error)

// Resolve fills every flag of fs that the command line did not set from the environment (as
// os.Environ returns it), then from the file that --config names, then from the last source, unless
// that is nil, and checks the result. All problems are reported; warnings are of what has no effect.
func (p Program) Resolve(fs *pflag.FlagSet, environ []string, last Source) (warnings []string, err error) {
	env := Environment(environ)
	errs := p.fill(env, fs)
	if file := fs.Lookup("config").Value.String(); file != "" {
		notes, wrong := readFile(file, fs, p.Rows, p.Ignored)
		errs, warnings = append(errs, wrong...), notes
	}
	if last != nil {
		errs = append(errs, fillLast(fs, last)...)
	}
	for _, text := range p.unknown(env, fs) {
		if last != nil { // what a misspelt variable should have beaten is in force
			errs = append(errs, errors.New(text))
		} else {
			warnings = append(warnings, text)
		}
	}
	if len(errs) == 0 {
		errs = p.check()
	}
	return warnings, errors.Join(errs...)
}

// fill sets the flags that the command line did not, and reads the family.
func (p Program) fill(env map[string]string, fs *pflag.FlagSet) (errs []error) {
	from := func(variable string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", variable, err))
		}
	}
	for _, s := range p.Rows {
		f := fs.Lookup(s.Name)
		if f.Changed {
			continue
		}
		variable := p.EnvName(s.Name)
		value, ok := env[variable]
		for _, a := range s.aliases {
			if text, set := env[a.env()]; set && !ok {
				var err error
				if value, err = a.value(text); err != nil {
					from(a.env(), err)
					continue
				}
				variable, ok = a.env(), true
			}
		}
		if ok && (value != "" || !repeated(f)) {
			from(variable, set(fs, f, strings.Split(value, ",")))
		}
	}
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		if p.Family.has(variable) {
			from(variable, p.Family.Read(variable[len(p.Family.Prefix):], env[variable]))
		}
	}
	return errs
}

// fillLast sets the flags that nothing else has set.
func fillLast(fs *pflag.FlagSet, last Source) (errs []error) {
	values, err := last(fs.Changed)
	if err != nil {
		return []error{err}
	}
	for _, v := range values {
		f := fs.Lookup(v.Flag)
		if f == nil || f.Changed {
			errs = append(errs, fmt.Errorf("%s: there is no setting %s to set", v.From, v.Flag))
		} else if err := set(fs, f, v.Values); err != nil {
			errs = append(errs, fmt.Errorf("%s: --%s: %w", v.From, v.Flag, err))
		}
	}
	return errs
}

// check returns what is wrong with settings.
func (p Program) check() (errs []error) {
	owner := map[string]string{} // of an address
	for _, s := range p.Rows {
		err := s.Check()
		if err == nil && s.listens {
			address := *s.Field.(*string)
			if other := owner[address]; other != "" && !strings.HasSuffix(address, ":0") {
				err = fmt.Errorf("%s is the address of --%s already: give it another one, or none", address, other)
			} else if address != "" {
				owner[address] = s.Name
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", s.Name, err))
		}
	}
	return errs
}

// Environment has the variables of os.Environ by their names.
func Environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	return env
}

// unknown returns a warning for every variable that looks like a setting and is not the name of one,
// unless the value of a setting names it, as password_env does. Values are not shown: they may be
// secrets.
func (p Program) unknown(env map[string]string, fs *pflag.FlagSet) (list []string) {
	known, values := map[string]bool{}, ""
	for _, name := range p.Names() {
		known[p.EnvName(name)] = true
	}
	fs.Visit(func(f *pflag.Flag) { values += f.Value.String() + "\n" })
	for name, value := range env {
		words := strings.Split(name, "_")
		n := min(len(words), strings.Count(p.Prefix, "_")+1)
		prefix, rest := strings.Join(words[:n], "_"), strings.ToLower(strings.Join(words[n:], "-"))
		switch {
		case known[name] || p.Family.has(name) || p.Ignores(name, value) || strings.Contains(values, name):
			continue
		case prefix != p.Prefix && (spell.Nearest(prefix, []string{p.Prefix}) == "" || !known[p.EnvName(rest)]):
			continue // another program's
		}
		meant := spell.Nearest(rest, p.Names())
		if meant != "" {
			meant = "; did you mean " + p.EnvName(meant) + "?"
		}
		list = append(list, fmt.Sprintf("unknown environment variable %s has no effect%s", name, meant))
	}
	slices.Sort(list)
	return list
}

// Ignores reports whether a variable with the program's prefix is not meant as a setting. The tests of this repository
// read some. Kubernetes sets others in every pod, for a Service whose name begins with the prefix: HEADGATE_GRPC_PORT
// could be a guessed setting too, but Kubernetes sets such names to a URL.
func (p Program) Ignores(name, value string) bool {
	rest, ours := strings.CutPrefix(name, p.Prefix)
	return ours && (strings.HasPrefix(rest, "_TEST") || serviceVariable.MatchString(rest) ||
		strings.HasSuffix(rest, "_PORT") && strings.Contains(value, "://"))
}

var serviceVariable = regexp.MustCompile(
	`^_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// Version returns the version that was linked into a program, or what the Go toolchain knows.
func Version(linked string) string {
	if info, ok := debug.ReadBuildInfo(); ok && linked == "" {
		linked = info.Main.Version
	}
	return cmp.Or(linked, "(devel)")
}
