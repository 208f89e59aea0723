package headgate

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Rules are rules from one source: [YAML], [Files] or [Values].
type Rules struct {
	texts []rulefile.Source
	paths []string
	spec  *descriptors.Spec
}

// YAML returns the rules in a text, which has the form of a file of rules. Errors about
// the text call it name.
func YAML(name, text string) Rules {
	return Rules{texts: []rulefile.Source{{Name: name, Data: []byte(text)}}}
}

// Files returns the rules in files, and in the *.yaml and *.yml of directories.
func Files(paths ...string) Rules { return Rules{paths: paths} }

// Values returns rules that a program has made. They must not change afterwards.
func Values(spec *descriptors.Spec) Rules { return Rules{spec: spec} }

// A ruleLoader compiles rules.
type ruleLoader struct {
	opt  rulefile.Options
	caps *backends.Caps
	log  *slog.Logger
	// policies: there are some, for rules that ask for them.
	policies bool
}

// load compiles rules of all sources together.
func (l *ruleLoader) load(list []Rules) (*descriptors.Set, error) {
	if len(list) == 0 {
		return nil, errors.New("headgate: no rules: set Options.Rules to YAML(…), Files(…) or Values(…)")
	}
	var texts []rulefile.Source
	var values []*descriptors.DomainSpec
	var hash uint64
	for i, r := range list {
		switch {
		case r.spec != nil:
			values, hash = append(values, r.spec.Domains...), hash^r.spec.Hash
		case len(r.paths) > 0:
			files, err := files.ReadPaths(r.paths, files.Names{})
			if err != nil {
				return nil, fmt.Errorf("headgate: %w", err)
			}
			texts = append(texts, files...)
		case r.texts != nil:
			texts = append(texts, r.texts...)
		default:
			return nil, fmt.Errorf("headgate: Rules[%d] is empty: it names no file and has no text", i)
		}
	}
	set, spec, problems := rulefile.LoadSpec(texts, l.opt)
	if set != nil && len(values) > 0 {
		var more descriptors.Problems
		set = descriptors.Build(&descriptors.Spec{Domains: append(spec.Domains, values...), Hash: spec.Hash ^ hash}, &more)
		problems = more.Sorted()
	}
	if set == nil {
		return nil, fmt.Errorf("headgate: %w", files.ProblemsError(problems))
	}
	if wrong := ratelimit.CapProblems(set, l.caps); len(wrong) > 0 {
		return nil, fmt.Errorf("headgate: %w", files.ProblemsError(wrong))
	}
	files.LogWarnings(l.log, problems)
	l.warnOfPolicies(set)
	return set, nil
}

// warnOfPolicies says that rules ask for policies where there are none.
func (l *ruleLoader) warnOfPolicies(set *descriptors.Set) {
	for _, r := range set.Rules() {
		if r.Policy != nil && !l.policies {
			l.log.Warn("a rule has policy:, and Options.Policies is not set: its own limit holds", "rule", r.Domain+"/"+r.Path,
				"policy", r.Policy)
			return
		}
	}
}

// watcher returns what follows the files of rules, and what it has loaded.
func (l *ruleLoader) watcher(list []Rules,
	install func(*descriptors.Set) error) (files.Watcher, *descriptors.Set, error) {
	var paths []string
	for i, r := range list {
		if len(r.paths) == 0 {
			return nil, nil, fmt.Errorf("headgate: Options.Follow is set, but Rules[%d] are not Files", i)
		}
		paths = append(paths, r.paths...)
	}
	if len(paths) == 0 {
		return nil, nil, errors.New("headgate: Options.Follow is set, but there are no Rules")
	}
	w, err := files.Watch(paths, files.Following{
		Options: l.opt, Log: l.log,
		Check: func(set *descriptors.Set) []descriptors.Problem { return ratelimit.CapProblems(set, l.caps) },
		OnChange: func(set *descriptors.Set, warnings []descriptors.Problem) {
			files.LogWarnings(l.log, warnings)
			l.warnOfPolicies(set)
			if err := install(set); err != nil {
				l.log.Error("the new rules cannot be used; the old rules stay in force", "error", err)
			}
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("headgate: Options.Follow: %w", err)
	}
	set, warnings, err := w.Load()
	var bad *files.LoadError
	switch {
	case errors.As(err, &bad):
		return nil, nil, fmt.Errorf("headgate: %w", files.ProblemsError(bad.Problems))
	case err != nil:
		return nil, nil, fmt.Errorf("headgate: rules in %s: %w", strings.Join(paths, ", "), err)
	}
	files.LogWarnings(l.log, warnings)
	l.warnOfPolicies(set)
	return w, set, nil
}
