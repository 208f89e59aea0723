package server

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/descriptors/watch"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/ratelimit"
)

//go:embed example.yaml
var exampleRules []byte

// A ruleFollower loads the rules at the start and reloads them as their files change.
type ruleFollower struct {
	log     *slog.Logger
	metrics *serverMetrics
	watcher *watch.Watcher               // nil for the built-in example
	install func(*descriptors.Set) error // puts new rules in force

	rejected atomic.Bool                   // install rejected the last rules
	outcome  atomic.Pointer[watch.Outcome] // of the last reading; nil for the example
}

// chooseRules decides which rules are served where --rules does not say. A service with slots needs no rules.
func chooseRules(conf *config.Config) error {
	if hasRules(conf) {
		return nil
	}
	if _, err := os.Stat(config.DefaultRules); err != nil && conf.Slots.URL != "" {
		return nil
	} else if err != nil {
		return errors.New("no rules to serve: name files or directories with --rules (HEADGATE_RULES), or put them into ./" +
			config.DefaultRules + "; to try headgate, --example serves a built-in example")
	}
	conf.Rules = []string{config.DefaultRules}
	return nil
}

func hasRules(conf *config.Config) bool {
	return len(conf.Rules) > 0 || conf.Example || conf.XDS.Address != ""
}

// loadRules does the first load, which must succeed.
func loadRules(conf *config.Config, caps *backends.Caps, log *slog.Logger, metrics *serverMetrics,
	install func(*descriptors.Set) error) (empty ruleSource, err error) {
	f := &ruleFollower{log: log, metrics: metrics, install: install}
	opt := rulefile.Options{MergeDomains: conf.MergeDomains, DefaultLeaseTTL: conf.LeaseTTL}
	if conf.Example {
		set, problems := rulefile.Load([]rulefile.Source{{Name: "built-in example", Data: exampleRules}}, opt)
		if set == nil {
			return empty, files.ProblemsError(problems)
		}
		return f.source("built-in example", set), nil
	}
	skip := conf.RulesErrors == config.SkipRules
	f.watcher = watch.New(conf.Rules, watch.Options{
		Options:   opt,
		Files:     ruleFiles(conf),
		Log:       log,
		Skip:      skip,
		Absent:    absent[conf.MissingDomain],
		Check:     func(set *descriptors.Set) []descriptors.Problem { return ratelimit.CapProblems(set, caps) },
		OnChange:  f.changed,
		OnOutcome: f.read,
	})
	set, warnings, err := f.watcher.Load()
	if bad, ok := errors.AsType[*files.LoadError](err); ok {
		err = files.ProblemsError(bad.Problems)
		if !skip {
			err = fmt.Errorf("%w\nto start without the domains of such files: --rules-errors skip "+
				"(HEADGATE_RULES_ERRORS=skip)", err)
		}
		return empty, err
	}
	if err != nil {
		return empty, fmt.Errorf("--rules: %w", err)
	}
	files.LogWarnings(f.log, warnings)
	f.warnOfNothing(set)
	return f.source(strings.Join(conf.Rules, ","), set), nil
}

// absent is what --missing-domain stands for.
var absent = map[string]watch.Absent{"": watch.RefuseOwned, "deny": watch.RefuseAll, "allow": watch.AllowAll}

// ruleFiles says which files of directories are read.
func ruleFiles(conf *config.Config) files.Names {
	return files.Names{All: conf.RulesFiles != "yaml", Dots: conf.RulesFiles == config.DotFiles, Empty: conf.RulesEmpty}
}

// warnOfNothing logs a warning if no rules file exists, so that nothing is limited.
func (f *ruleFollower) warnOfNothing(set *descriptors.Set) {
	if len(set.Domains()) == 0 {
		f.log.Warn("no rules files found: nothing is limited")
	}
}

// read notes what came of reading the rules.
func (f *ruleFollower) read(o *watch.Outcome) {
	f.metrics.files.set(o.Errors())
	switch {
	case o.Err != nil:
		f.metrics.rulesFailed()
	case !f.rejected.Load():
		f.metrics.rulesRead()
	}
	f.outcome.Store(o)
}

// changed puts new rules in force. The watcher has logged that they are new, but not
// what to warn of.
func (f *ruleFollower) changed(set *descriptors.Set, warnings []descriptors.Problem) {
	files.LogWarnings(f.log, warnings)
	f.warnOfNothing(set)
	err := f.install(set)
	f.rejected.Store(err != nil)
	if err != nil {
		f.log.Error("the backend does not support the new rules; the old rules stay in force", "error", err)
		f.metrics.rulesFailed()
	}
}

// run reloads rules as their files change, until ctx ends.
func (f *ruleFollower) run(ctx context.Context) error {
	if f.watcher == nil {
		return nil
	}
	if err := f.watcher.Run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch rules: %w", err)
	}
	return nil
}

// source returns the rules of the start, and what follows them.
func (f *ruleFollower) source(name string, loaded *descriptors.Set) ruleSource {
	return ruleSource{name: name, begin: loaded, first: closed, run: f.run, part: f.part}
}

// part reports whether all files could be read without errors, and are in force; the service is ready all the same.
func (f *ruleFollower) part() web.Part {
	part := web.Part{Name: "rules", Problem: describeOutcome(f.outcome.Load()), Serving: true}
	if part.Problem == "" && f.rejected.Load() {
		part.Problem = "the backend does not support the new rules; the old ones stay in force"
	}
	return part
}

// describeOutcome names the files that have errors and the domains that suffer; "" if
// nothing is wrong. The log has the errors themselves: /readyz has no guard.
func describeOutcome(o *watch.Outcome) string {
	if o == nil || o.Err == nil {
		return ""
	}
	const most = 20
	var list []string
	errors := o.Errors()
	for _, file := range slices.Sorted(maps.Keys(errors)) {
		if len(list) == most {
			list = append(list, fmt.Sprintf("and %d more files", len(errors)-most))
			break
		}
		list = append(list, file+" has "+spell.Count(errors[file], "error"))
	}
	if len(errors) == 0 {
		list = append(list, "the files cannot be read")
	}
	for _, d := range []struct {
		what  string
		names []string
	}{{"domains as before: ", o.Kept}, {"domains that are not limited: ", o.Missing},
		{"domains that are refused: ", o.Refused}} {
		if len(d.names) > 0 {
			list = append(list, d.what+strings.Join(d.names[:min(len(d.names), most)], " "))
		}
	}
	return strings.Join(list, "; ")
}

// A ruleSource is where rules come from, and what follows them as they change.
type ruleSource struct {
	name  string           // for the log
	begin *descriptors.Set // the rules to start with; nil if they are still awaited
	first <-chan struct{}  // is closed when there are rules, or none are awaited
	// run follows the rules until ctx ends.
	run func(ctx context.Context) error
	// part reports whether there are rules, and whether all of them could be read.
	part func() web.Part
	// describe writes what there is to say of the rules beside themselves, as lines that
	// begin with #; nil: there is nothing to say.
	describe func(w io.Writer) error
}

// closed is a channel that is closed.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// noRules is the rule source of a service that only assigns slots. A call that asks for a limit gets an error, as
// before a control plane sends the first rules. With an empty set of rules the call would pass.
func noRules() ruleSource {
	return ruleSource{name: "none", first: closed, run: func(context.Context) error { return nil }, part: func() web.Part {
		return web.Part{Name: "rules", Problem: "none: only slots are served", Serving: true}
	}}
}
