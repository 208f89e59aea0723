package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A setting is a row of the table of settings: all there is to know of it.
type setting struct {
	flag    string
	help    string
	field   any // a pointer into a Config
	aliases []alias
	words   []string // all values that there are, if it is one of several words
	define  func(fs *pflag.FlagSet)
	check   func() error  // what is wrong with its value
	address func() string // nil unless it is the address of a listener
	secret  secrecy       // what of its value nobody may see
}

// A secrecy says what of a value nobody may see.
type secrecy uint8

const (
	public secrecy = iota
	inURL          // the password in a URL
	whole          // all of it
)

// hiding gives a setting its secrecy.
func (s setting) hiding(what secrecy) setting {
	s.secret = what
	return s
}

// row returns the setting that fills field. The check says what is wrong with a
// value; nil accepts every one. In the help text, what stands in backquotes
// names the value.
func row[T string | bool | int | time.Duration | []string](flag string, field *T, byDefault T, check func(T) error, help string) setting {
	s := setting{flag: flag, help: help, field: field}
	s.define = func(fs *pflag.FlagSet) {
		switch f := any(field).(type) {
		case *string:
			fs.StringVar(f, flag, any(byDefault).(string), help)
		case *bool:
			fs.BoolVar(f, flag, any(byDefault).(bool), help)
		case *int:
			fs.IntVar(f, flag, any(byDefault).(int), help)
		case *time.Duration:
			fs.DurationVar(f, flag, any(byDefault).(time.Duration), help)
		case *[]string:
			fs.StringArrayVar(f, flag, any(byDefault).([]string), help)
		}
	}
	s.check = func() error {
		if d, ok := any(*field).(time.Duration); ok && d < 0 {
			return fmt.Errorf("%v: must not be negative", d)
		}
		if check == nil {
			return nil
		}
		return check(*field)
	}
	return s
}

// listener returns the setting of an address that is listened on.
func listener(flag string, field *string, byDefault string, check func(string) error, help string) setting {
	s := row(flag, field, byDefault, all(check, address), help)
	s.address = func() string { return *field }
	return s
}

// also gives a setting the name that another program has for it.
func (s setting) also(property string) setting {
	s.aliases = append(s.aliases, alias{property: property, flag: s.flag})
	return s
}

// alsoInSeconds does, where the other program has a number of seconds.
func (s setting) alsoInSeconds(property string) setting {
	s.aliases = append(s.aliases, alias{property: property, flag: s.flag, seconds: true})
	return s
}

// among names all values that a setting may have; its check refuses others.
func (s setting) among(words ...string) setting {
	s.words = words
	return s
}

// all returns a check that passes what passes all checks.
func all[T any](checks ...func(T) error) func(T) error {
	return func(v T) error {
		for _, check := range checks {
			if check == nil {
				continue
			}
			if err := check(v); err != nil {
				return err
			}
		}
		return nil
	}
}

// require returns a check of whether a setting goes with others.
func require[T any](ok func() bool, message string) func(T) error {
	return func(T) error {
		if !ok() {
			return errors.New(message)
		}
		return nil
	}
}

// either returns a check for one of two words.
func either(a, b string) func(string) error {
	return func(v string) error {
		if v != a && v != b {
			return fmt.Errorf("must be %s or %s, not %q", a, b, v)
		}
		return nil
	}
}

// oneOf returns a check for one of several words.
func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("must be one of %s, not %q", strings.Join(words, ", "), v)
		}
		return nil
	}
}

// parsed returns a check by a function that reports whether it knows the value.
func parsed[T any](parse func(string) (T, bool), format string) func(string) error {
	return func(v string) error {
		if _, ok := parse(v); !ok {
			return fmt.Errorf(format, v)
		}
		return nil
	}
}

// between returns a check for a number within bounds.
func between(least, most int) func(int) error {
	return func(v int) error {
		if v < least || v > most {
			return fmt.Errorf("%d is outside %d to %d", v, least, most)
		}
		return nil
	}
}

func atLeastOne(v int) error {
	if v < 1 {
		return errors.New("must be at least 1")
	}
	return nil
}

func positive(d time.Duration) error {
	if d <= 0 {
		return errors.New("must be positive")
	}
	return nil
}

func required(v string) error {
	if v == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func atLeastSecond(d time.Duration) error {
	if d < time.Second {
		return fmt.Errorf("%v is less than 1s", d)
	}
	return nil
}

func atMostMinute(d time.Duration) error {
	if d <= 0 || d > time.Minute {
		return fmt.Errorf("%v is not between 0 and 1m", d)
	}
	return nil
}

// httpURL refuses what is neither empty nor an http or https URL. The error does not
// quote it: there may be a secret in it.
func httpURL(v string) error {
	if v == "" {
		return nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("want http://host/path or https://host/path")
	}
	return nil
}

// headerName refuses names that no HTTP header can have.
func headerName(name string) error {
	if strings.ContainsFunc(name, notInToken) {
		return fmt.Errorf("%q cannot be the name of an HTTP header", name)
	}
	return nil
}

// notInToken says whether RFC 9110 forbids r in the name of a header.
func notInToken(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// ratio is the check of a number from 0 to 1.
func ratio(text string) error {
	if f, err := strconv.ParseFloat(text, 64); err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", text)
	}
	return nil
}

// metricsPath is the check of the path of metrics, which must not hide others.
func metricsPath(path string) error {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "{}?# ") || path == "/rlconfig" || strings.HasPrefix(path, "/debug/") {
		return fmt.Errorf("%q cannot be the path of metrics; want for example /metrics", path)
	}
	return nil
}
