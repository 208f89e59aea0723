package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// A Setting is a row of the table: all there is to know of a setting.
type Setting struct {
	Name    string
	Help    string
	Group   string   // its section in help and documentation; empty if the program has none
	Field   any      // where the value goes
	Words   []string // all values that there are, if it is one of several words
	def     any
	checks  []func() error
	listens bool // it is the address of a listener
	secret  secrecy
	aliases []Alias
}

// A secrecy says what of a value nobody may see.
type secrecy uint8

const (
	public secrecy = iota
	inURL          // the password in a URL
	whole          // all of it
)

// Group sets the Group of rows.
func Group(name string, rows ...[]Setting) []Setting {
	all := slices.Concat(rows...)
	for i := range all {
		all[i].Group = name
	}
	return all
}

// An Option says more about a setting.
type Option func(*Setting)

// Row returns the setting that fills field. In the help text, what stands in backquotes names the
// value. Durations must not be negative.
func Row[T string | bool | int | time.Duration | []string](
	name string, field *T, def T, help string, more ...Option,
) Setting {
	s := Setting{Name: name, Help: help, Field: field, def: def}
	for _, option := range more {
		option(&s)
	}
	return s
}

func (s *Setting) define(fs *pflag.FlagSet) {
	switch to := s.Field.(type) {
	case *string:
		fs.StringVar(to, s.Name, s.def.(string), s.Help)
	case *bool:
		fs.BoolVar(to, s.Name, s.def.(bool), s.Help)
	case *int:
		fs.IntVar(to, s.Name, s.def.(int), s.Help)
	case *time.Duration:
		fs.DurationVar(to, s.Name, s.def.(time.Duration), s.Help)
	case *[]string:
		fs.StringArrayVar(to, s.Name, s.def.([]string), s.Help)
	}
}

// Check returns the first thing that is wrong with the value.
func (s *Setting) Check() error {
	if d, ok := s.Field.(*time.Duration); ok && *d < 0 {
		return fmt.Errorf("%v: must not be negative", *d)
	}
	for _, check := range s.checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Secret hides the value wherever it is shown.
func Secret(s *Setting) { s.secret = whole }

// HasSecret reports whether the value is a secret, or a URL that may have one.
func (s *Setting) HasSecret() bool { return s.secret != public }

// URLWithSecret hides the password in a value that is a URL.
func URLWithSecret(s *Setting) { s.secret = inURL }

// Also gives a setting a name that another program has for it.
func Also(property string) Option {
	return func(s *Setting) { s.aliases = append(s.aliases, Alias{Property: property, flag: s.Name}) }
}

// AlsoInSeconds does, where the other program has a number of seconds.
func AlsoInSeconds(property string) Option {
	return func(s *Setting) {
		s.aliases = append(s.aliases, Alias{Property: property, flag: s.Name, seconds: true})
	}
}

// Check refuses values that a function does not accept.
func Check[T any](check func(T) error) Option {
	return func(s *Setting) {
		field := s.Field.(*T)
		s.checks = append(s.checks, func() error { return check(*field) })
	}
}

// Want refuses a setting, whatever its value, unless ok.
func Want(ok func() bool, message string) Option {
	return func(s *Setting) {
		s.checks = append(s.checks, func() error {
			if !ok() {
				return errors.New(message)
			}
			return nil
		})
	}
}

// Needs is [Want] for a setting that is set to something.
func Needs(ok func() bool, message string) Option {
	return func(s *Setting) { Want(func() bool { return s.zero() || ok() }, message)(s) }
}

// Missing returns the setting for a program that lacks its feature. Setting it is an error that says what to do.
func (s Setting) Missing(why, remedy string) Setting {
	s.Help, s.checks = why, nil
	Needs(func() bool { return false }, "is "+why+": "+remedy)(&s)
	return s
}

// zero reports whether the value is that of nothing.
func (s *Setting) zero() bool {
	switch v := s.Field.(type) {
	case *string:
		return *v == ""
	case *bool:
		return !*v
	case *[]string:
		return len(*v) == 0
	}
	return false
}

// OneOf names all words that a setting may be.
func OneOf(words ...string) Option {
	named := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
	return func(s *Setting) {
		s.Words = words
		Check(func(v string) error {
			if !slices.Contains(words, v) {
				return fmt.Errorf("must be %s, not %q", spell.OneOf(named), v)
			}
			return nil
		})(s)
	}
}

// Between is for numbers and durations within bounds.
func Between[T int | time.Duration](least, most T) Option {
	return Check(func(v T) error {
		if v < least || v > most {
			return fmt.Errorf("%v is outside %v to %v", v, least, most)
		}
		return nil
	})
}

// AtLeast is for numbers and durations with a lower bound.
func AtLeast[T int | time.Duration](least T) Option {
	return Check(func(v T) error {
		if v < least {
			return fmt.Errorf("must be at least %v", least)
		}
		return nil
	})
}

// AtMost is for durations with an upper bound.
func AtMost(most time.Duration) Option {
	return Check(func(d time.Duration) error {
		if d > most {
			return fmt.Errorf("%v is more than %v", d, most)
		}
		return nil
	})
}

// Pair is for the certificate of a key pair; other is the flag of the key.
func Pair(cert, key *string, other string) Option {
	return Want(func() bool { return (*cert == "") == (*key == "") }, "needs "+other+", and the other way round")
}

// Checks that need no parameters.
var (
	// Listens says that a setting is an address that is listened on, which two cannot have.
	Listens Option = func(s *Setting) {
		s.listens = true
		Address(s)
	}
	// Address is for one that is listened on or called, or is empty.
	Address = Check(func(text string) error {
		if text == "" {
			return nil
		}
		return CheckAddress(text)
	})
	// Positive is for durations.
	Positive = Check(func(d time.Duration) error {
		if d <= 0 {
			return errors.New("must be positive")
		}
		return nil
	})
	// Required is for texts that must not be empty.
	Required = Check(func(v string) error {
		if v == "" {
			return errors.New("must not be empty")
		}
		return nil
	})
	// Ratio is for a number from 0 to 1, as a text.
	Ratio = Check(func(text string) error {
		if f, err := strconv.ParseFloat(text, 64); err != nil || !(f >= 0 && f <= 1) {
			return fmt.Errorf("%q is not a number from 0 to 1", text)
		}
		return nil
	})
	// HeaderName refuses names that no HTTP header can have.
	HeaderName = Check(func(name string) error {
		if strings.ContainsFunc(name, notInToken) {
			return fmt.Errorf("%q cannot be the name of an HTTP header", name)
		}
		return nil
	})
	// Token refuses a token that can be guessed.
	Token = Check(CheckToken)
)

// notInToken reports whether RFC 9110 forbids r in the name of a header.
func notInToken(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// minToken is the shortest token that is accepted: shorter ones can be guessed.
const minToken = 16

// CheckToken refuses a token that can be guessed. The error does not quote it.
func CheckToken(v string) error {
	if v != "" && len(v) < minToken {
		return fmt.Errorf("has %d characters, want at least %d; `openssl rand -hex 32` makes one", len(v), minToken)
	}
	return nil
}

// An Alias is the name that another program has for a setting of ours, so that its environment and
// its file go on working.
type Alias struct {
	Property string // in the environment: in capitals, with _ for . and -
	Note     string // why it has no effect, or what to use
	Refused  bool   // it is an error
	flag     string // empty: the setting is read and has no effect
	seconds  bool   // it is a number of seconds
}

func (a *Alias) env() string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(a.Property))
}

// value returns what to set the flag to.
func (a *Alias) value(text string) (string, error) {
	if !a.seconds {
		return text, nil
	}
	if _, err := strconv.ParseUint(text, 10, 31); err != nil {
		return "", fmt.Errorf("%q is not a number of seconds", text)
	}
	return text + "s", nil
}

// repeated reports whether a flag may be given several times.
func repeated(f *pflag.Flag) bool { return f.Value.Type() == "stringArray" }

// set sets f to values; only a flag that may be repeated takes several.
func set(fs *pflag.FlagSet, f *pflag.Flag, values []string) error {
	if !repeated(f) {
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
	"bool":     ": want true or false",
	"int":      ": want a whole number",
	"uint32":   ": want a whole number from 0 to 4294967295",
	"duration": ": want a duration such as 500ms, 5s or 2m",
	"time":     ": want a time such as 2026-01-31T12:00:00Z",
}

// BadValue returns the error about a value that f does not take.
func BadValue(f *pflag.Flag, value string) error {
	return fmt.Errorf("%q is not a valid %s%s", value, f.Value.Type(), wants[f.Value.Type()])
}
