package compat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// values are the variables of the reference that an environment sets, with the defaults of those
// that it does not, and the variables of OpenTelemetry.
type values struct {
	env, otel map[string]string
	alike     []string // names that look like misspelt ones of the reference
}

func newValues(environ []string) *values {
	v := &values{env: map[string]string{}, otel: map[string]string{}}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if _, known := byName[name]; known {
			v.env[name] = value
		} else if strings.HasPrefix(name, "OTEL_") {
			v.otel[name] = strings.TrimSpace(value)
		} else if similar(name) != "" {
			v.alike = append(v.alike, name)
		}
	}
	slices.Sort(v.alike)
	return v
}

// similar returns the variable that a misspelt one may have meant, or "". Names of one word are
// near to those of other programs, and what has no effect anyway is not missed.
func similar(name string) string {
	meant := spell.Similar(name, phrases)
	if meant == "" || Variables[byName[meant]].Effect == Ignored {
		return ""
	}
	return meant
}

// phrases are the names of more than one word.
var phrases = func() (list []string) {
	for i := range Variables {
		if name := Variables[i].Name; strings.Contains(name, "_") {
			list = append(list, name)
		}
	}
	return list
}()

// set reports whether the environment sets a variable.
func (v *values) set(name string) bool {
	_, ok := v.env[name]
	return ok
}

// text returns the value of a variable, or its default.
func (v *values) text(name string) string {
	if text, ok := v.env[name]; ok {
		return text
	}
	return Variables[byName[name]].Default
}

// on reports whether a variable is true.
func (v *values) on(name string) bool {
	b, _ := strconv.ParseBool(v.text(name))
	return b
}

// A kind says how the value of a variable is written.
type kind uint8

const (
	anyText  kind = iota // also empty
	text                 // empty is as good as not set, as for all that follow
	boolean              // as strconv.ParseBool
	number               // a whole number, not negative
	port                 // of TCP
	duration             // as time.ParseDuration
	ratio                // from 0 to 1
)

// check says what is wrong with a value. It does not quote texts, which may be secrets.
func (k kind) check(value string) error {
	switch k {
	case boolean:
		if _, err := strconv.ParseBool(value); err != nil {
			return fmt.Errorf("must be true or false, not %q", value)
		}
	case number:
		if _, err := strconv.ParseUint(value, 10, 31); err != nil {
			return fmt.Errorf("%q is not a whole number from 0 to 2147483647", value)
		}
	case port:
		if _, err := strconv.ParseUint(value, 10, 16); err != nil {
			return fmt.Errorf("%q is not a port from 0 to 65535", value)
		}
	case duration:
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			return fmt.Errorf("%q is not a duration such as 500ms, 5s or 2m", value)
		}
	case ratio:
		if f, err := strconv.ParseFloat(value, 64); err != nil || !(f >= 0 && f <= 1) {
			return errors.New("want a number from 0 to 1, not " + strconv.Quote(value))
		}
	}
	return nil
}
