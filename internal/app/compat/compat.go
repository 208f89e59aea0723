package compat

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// A Setting is a value for a setting of headgate, or for a variable of OpenTelemetry.
type Setting struct {
	Name   string   // of the setting, as its flag has it, or of the variable
	Values []string // one, except for settings that may be repeated
	From   []string // the variables that it was made of; none: the mode itself wants it
}

// A Result is what came of an environment.
type Result struct {
	Settings []Setting
	// Environment has variables of OpenTelemetry, for which headgate has no settings.
	Environment []Setting
	Warnings    []string // what headgate does otherwise than the variables say
	Notes       []string // what is good to know
	Ignored     []string // names of variables that are set and have no effect
}

// Translate reads environ, as os.Environ returns it. Settings for which given reports true are
// left out with their problems: somebody has set them by headgate's own names. The error has
// every problem, each with the name of its variable; it never quotes secrets.
func Translate(environ []string, given func(flag string) bool) (*Result, error) {
	t := &translation{values: newValues(environ), res: new(Result)}
	t.readVariables()
	for _, name := range t.alike {
		t.warn("environment variable %s has no effect; did you mean %s?", name, similar(name))
	}
	for i := range mappings {
		if m := &mappings[i]; !given(m.name) {
			t.res.Settings = t.apply(m, t.res.Settings)
		}
	}
	t.traces()
	slices.Sort(t.res.Ignored)
	sort.Slice(t.errs, func(i, j int) bool { return t.errs[i].Error() < t.errs[j].Error() })
	return t.res, errors.Join(slices.CompactFunc(t.errs, func(a, b error) bool { return a.Error() == b.Error() })...)
}

// A translation is an environment on its way to settings.
type translation struct {
	*values
	res  *Result
	errs []error
}

// readVariables looks at each variable by itself.
func (t *translation) readVariables() {
	for i := range Variables {
		v := &Variables[i]
		text, set := t.env[v.Name]
		if !set {
			continue
		}
		if v.Effect == Ignored {
			t.res.Ignored = append(t.res.Ignored, v.Name)
			continue
		}
		if v.kind == port && strings.Contains(text, "://") {
			t.warn("%s is ignored: Kubernetes set it for a Service of that name; set enableServiceLinks: "+
				"false to keep such variables out", v.Name)
			delete(t.env, v.Name)
			continue
		}
		if text == "" && v.kind != anyText {
			delete(t.env, v.Name)
			continue
		}
		if err := v.kind.check(text); err != nil {
			t.fail(v.Name, err)
			t.env[v.Name] = v.Default // one problem is enough
			continue
		}
		if v.Effect == Refused && t.on(v.Name) {
			t.failf(v.Name, "%s", v.Note)
		}
		if v.Effect == Warned && (v.kind != boolean || t.on(v.Name)) && text != v.Default {
			t.warn("%s: %s", v.Name, v.Note)
		}
	}
}

// apply adds what a row makes to a list.
func (t *translation) apply(m *mapping, to []Setting) []Setting {
	before := len(t.errs)
	list := m.make(t)
	if list == nil || len(t.errs) > before {
		return to
	}
	s := Setting{Name: m.name, Values: list}
	for _, name := range m.from {
		if t.set(name) {
			s.From = append(s.From, name)
		}
	}
	return append(to, s)
}

func (t *translation) warn(format string, args ...any) {
	t.res.Warnings = append(t.res.Warnings, fmt.Sprintf(format, args...))
}

func (t *translation) note(format string, args ...any) {
	t.res.Notes = append(t.res.Notes, fmt.Sprintf(format, args...))
}

func (t *translation) fail(name string, err error) {
	t.errs = append(t.errs, fmt.Errorf("environment variable %s: %w", name, err))
}

func (t *translation) failf(name, format string, args ...any) {
	t.fail(name, fmt.Errorf(format, args...))
}

// ownPrefixes are prefixes of variables that hardly any program but the reference reads. Many programs read PORT, HOST,
// LOG_LEVEL and the variables of metrics and traces.
var ownPrefixes = []string{"RUNTIME_", "CONFIG_TYPE", "CONFIG_GRPC_XDS_", "REDIS_"}

// Own returns the variables of an environment that are the reference's own, in the order of their names. rules says
// whether one of them says where the rules are: others, such as REDIS_URL, might be meant for another program.
func Own(environ []string) (names []string, rules bool) {
	for name, value := range newValues(environ).env {
		i := slices.IndexFunc(ownPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if i >= 0 && value != "" {
			names = append(names, name)
			rules = rules || ownPrefixes[i] != "REDIS_"
		}
	}
	slices.Sort(names)
	return names, rules
}
