//go:build !rlsonly

package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/descriptors/watch"
	"github.com/headgate-rls/headgate/internal/app/candidate"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/virtual"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A trial is the rules of --candidate, which decide live requests beside the rules.
type trial struct {
	*candidate.Candidate
	log     *slog.Logger
	store   *stack.Stack
	own     *candidate.Own // nil: the store is this candidate's alone
	watcher *watch.Watcher

	outcome     atomic.Pointer[watch.Outcome] // of the last reading; nil: there was none
	unsupported atomic.Bool                   // the store does not support the last rules that could be read
}

// trialMemory is where the counters of a candidate are kept in this process.
const trialMemory = "memory://?max_keys=200000"

// openTrial opens the rules and the store of --candidate. Nothing that is wrong with the rules is an error: they are of
// no importance to the live ones.
func openTrial(ctx context.Context, s *server) (*addition, error) {
	conf, c, panics := s.conf, &s.conf.Candidate, s.panics
	if len(c.Rules) == 0 {
		return nil, nil
	}
	t := &trial{log: s.log.With("of", "candidate")}
	caps, err := stack.Caps(conf.Backend)
	if err != nil {
		return nil, fmt.Errorf("--backend: %w", err)
	}
	url, shared := conf.Backend, c.Store != config.MemoryStore && !caps.Local
	if !shared {
		url = trialMemory
	}
	t.store, err = stack.New(ctx, url, stack.Options{Timeout: conf.BackendTimeout / 2, Existing: !conf.BackendMigrate,
		Replicas: conf.Replicas, Log: t.log, Panics: panics})
	if err != nil {
		return nil, fmt.Errorf("--candidate-store: %w", err)
	}
	service := conf.Decisions()
	service.Backend, service.Caps, service.Local, service.Now = t.store.Backend, t.store.Caps, t.store.Local, t.store.Now
	service.Log, service.Panics, service.Timeout = slog.New(slog.DiscardHandler), panics, conf.BackendTimeout/2
	service.Policies = s.policies()
	if shared {
		if t.store.Caps.PlainWindows {
			_ = t.store.Close()
			return nil, fmt.Errorf("--candidate-store: %s has no room for counters of a candidate: use memory",
				t.store.Caps.Title())
		}
		t.own = &candidate.Own{Backend: t.store.Backend}
		service.Backend = t.own
	}
	if t.Candidate, err = candidate.New(candidate.Config{Service: service, Sample: c.Part(), Panics: panics,
		Evicted: func() int64 { return virtual.Evicted(t.store.Figures()) }}); err != nil {
		_ = t.store.Close()
		return nil, fmt.Errorf("--candidate: %w", err)
	}
	s.metrics.Add(t.Rows()...)
	t.follow(conf)
	return &addition{tap: t, admin: map[string]http.Handler{"candidate": t}, part: t.part, run: t.run,
		close: t.close}, nil
}

// follow reads the rules, and prepares to follow them.
func (t *trial) follow(conf *config.Config) {
	names := ruleFiles(conf)
	names.Empty = true // when they have been promoted
	t.watcher = watch.New(conf.Candidate.Rules, watch.Options{
		Options: rulefile.Options{MergeDomains: conf.MergeDomains, DefaultLeaseTTL: conf.LeaseTTL},
		Files:   names, Log: t.log,
		Check: func(set *descriptors.Set) []descriptors.Problem { return ratelimit.CapProblems(set, &t.store.Caps) },
		OnChange: func(set *descriptors.Set, warnings []descriptors.Problem) {
			files.LogWarnings(t.log, warnings)
			t.install(set)
		},
		OnOutcome: t.read,
	})
	set, warnings, err := t.watcher.Load()
	if err != nil {
		t.log.Error("the rules of --candidate cannot be put on trial; the live rules are not concerned", "error", err)
		o := &watch.Outcome{Err: err}
		if bad, ok := errors.AsType[*files.LoadError](err); ok {
			o.Problems = bad.Problems
		}
		t.read(o)
		return
	}
	files.LogWarnings(t.log, warnings)
	t.install(set)
}

// read notes what came of reading the rules.
func (t *trial) read(o *watch.Outcome) {
	t.outcome.Store(o)
	switch {
	case o.Err != nil:
		t.Failed(o.Err)
	case !t.unsupported.Load():
		t.Read()
	}
}

// part reports whether the last rules are on trial. The live rules are not concerned.
func (t *trial) part() web.Part {
	part := web.Part{Name: "candidate", Serving: true}
	last := watch.Outcome{}
	if o := t.outcome.Load(); o != nil {
		last = watch.Outcome{Problems: o.Problems, Err: o.Err} // what it says of domains is about live rules
	}
	if problem := describeOutcome(&last); problem != "" {
		part.Problem = "not all of the last rules are on trial: " + problem
	} else if t.unsupported.Load() {
		part.Problem = "the last rules are not on trial: their store does not support them"
	}
	return part
}

func (t *trial) install(set *descriptors.Set) {
	if t.own != nil {
		h := sha256.New() // the same name on each replica
		_ = set.Dump(h)   // a hash takes all
		t.own.Begin(hex.EncodeToString(h.Sum(nil)))
	}
	err := t.SetRules(set)
	t.unsupported.Store(err != nil)
	if err != nil {
		t.log.Error("the store of the candidate does not support the new rules; the former ones stay on trial", "error", err)
		return
	}
	if n := len(set.Domains()); n > 0 {
		t.log.Info("rules are on trial", "domains", n)
	} else {
		t.log.Info("no rules are on trial")
	}
}

// run decides, and follows the rules, until ctx ends.
func (t *trial) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { t.Run(ctx) })
	running.Go(func() { t.store.Run(ctx) })
	if err := t.watcher.Run(ctx); err != nil && ctx.Err() == nil {
		t.log.Error("the rules of --candidate are not followed any more", "error", err)
		t.read(&watch.Outcome{Err: err})
	}
	running.Wait()
}

func (t *trial) close() {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackWithin)
	defer cancel()
	t.Close(ctx)
	if err := t.store.Close(); err != nil {
		t.log.Warn("could not close the store of the candidate", "error", err)
	}
}
