package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A Limiter decides about requests. Its methods may be called concurrently, and beside
// [Limiter.Close]. [Open] makes it: the zero Limiter cannot be used.
type Limiter struct {
	service *ratelimit.Service
	store   *stack.Stack
	source  policies.Source // nil without a database of policies
	rules   ruleLoader
	timeout time.Duration
	local   bool             // the store does no I/O
	tracer  ratelimit.Tracer // nil makes no spans
	panics  *background.Reporter
	metrics *ratelimit.Metrics // nil counts nothing
	answers ratelimit.Observe

	panicked *background.Panics
	calls    sync.Pool // *call

	wanted   atomic.Pointer[wanted]
	gate     gate
	held     held
	stop     context.CancelFunc
	running  sync.WaitGroup
	withdraw func() // the metrics
	closing  sync.Once
}

// Open returns a limiter, which the caller closes. The store need not answer yet: until it
// does, failure policies decide. Open fails if an option or the rules are wrong, if the store
// cannot keep the rules, or if it answers that it cannot be used so: no such user or database, no
// rights, no schema. It waits for the store until ctx ends, and for a few
// seconds at most.
func Open(ctx context.Context, opt Options) (*Limiter, error) {
	conf, err := opt.settings()
	if err != nil {
		return nil, err
	}
	opt.Backend = cmp.Or(opt.Backend, "memory://")
	caps, err := stack.Caps(opt.Backend)
	if err != nil {
		return nil, fmt.Errorf("headgate: Options.Backend: %w", err)
	}
	l := &Limiter{timeout: conf.Timeout, local: caps.Local, tracer: opt.Tracer, withdraw: func() {},
		panics: &background.Reporter{Log: conf.Log}}
	l.rules = ruleLoader{opt: rulefile.Options{DefaultLeaseTTL: opt.LeaseTTL}, caps: &caps, log: conf.Log,
		policies: opt.Policies != ""}
	l.calls.New = func() any { return &call{begun: ratelimit.Begun{Lane: metrics.NextLane()}} }
	l.gate.drained, l.held.wake = make(chan struct{}), make(chan struct{}, 1)

	var set *descriptors.Set
	var follow func(context.Context) error
	if opt.Follow {
		w, loaded, err := l.rules.watcher(opt.Rules, l.install)
		if err != nil {
			return nil, err
		}
		set, follow = loaded, w.Run
	} else if set, err = l.rules.load(opt.Rules); err != nil {
		return nil, err
	}
	if err := l.open(ctx, &opt, conf, set); err != nil {
		return nil, err
	}
	later, err := l.prepare(ctx, &opt)
	if err != nil {
		l.withdraw()
		return nil, errors.Join(err, l.closeStore())
	}
	l.start(ctx, follow, later)
	return l, nil
}

// open opens the store and makes the engine.
func (l *Limiter) open(ctx context.Context, opt *Options, conf ratelimit.Config, set *descriptors.Set) (err error) {
	stackOptions := stack.Options{Timeout: conf.Timeout, Replicas: opt.Replicas, Existing: opt.NoMigrate, Log: conf.Log,
		Panics: l.panics}
	if opt.Metrics != nil {
		l.metrics, l.panicked = ratelimit.NewMetrics(), background.NewPanics()
		l.panics.Count, l.answers = l.panicked.Count, l.metrics.Requests("library")
		stackOptions.Observe, conf.Metrics = true, l.metrics
	}
	if l.store, err = stack.New(ctx, opt.Backend, stackOptions); err != nil {
		return fmt.Errorf("headgate: Options.Backend: %w", err)
	}
	conf.Backend, conf.Caps, conf.Local, conf.Registry = l.store.Backend, l.store.Caps, l.store.Local, l.store.Registry
	conf.Now, conf.Panics = l.store.Now, l.panics
	if err := l.openPolicies(ctx, opt, &conf); err != nil {
		return errors.Join(err, l.store.Close())
	}
	if l.service, err = ratelimit.New(conf, set); err != nil {
		return errors.Join(fmt.Errorf("headgate: %w", err), l.store.Close(), l.closePolicies())
	}
	if err := l.publish(opt.Metrics); err != nil {
		return errors.Join(err, l.closeStore())
	}
	return nil
}

// openPolicies reads the policies, if there are any. If their database does not answer, rules
// decide by their own limits until it does.
func (l *Limiter) openPolicies(ctx context.Context, opt *Options, conf *ratelimit.Config) error {
	if opt.Policies == "" {
		return nil
	}
	source, err := policies.OpenSource(policies.Location{URL: opt.Policies, Migrate: !opt.NoMigrate, Log: conf.Log})
	if err != nil {
		return fmt.Errorf("headgate: Options.Policies: %w", err)
	}
	l.source = source
	source.InForce().Keeps = conf.Caps.Check
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := l.source.Start(ctx); err != nil {
		return errors.Join(fmt.Errorf("headgate: Options.Policies: %w", err), l.closePolicies())
	}
	conf.Policies = l.source.InForce()
	return nil
}

func (l *Limiter) closePolicies() error {
	if l.source == nil {
		return nil
	}
	return l.source.Close()
}

// publish registers the metrics.
func (l *Limiter) publish(to Metrics) error {
	if l.metrics == nil {
		return nil
	}
	rows := slices.Concat(l.metrics.Rows(), l.panicked.Rows(), l.store.Figures(), l.service.Leases().Rows(),
		l.service.Coverage().Rows())
	if l.source != nil {
		rows = append(rows, l.source.InForce().Rows()...)
	}
	unregister, err := to.Register(rows...)
	if err != nil {
		return fmt.Errorf("headgate: Options.Metrics: %w", err)
	}
	l.withdraw = unregister
	return nil
}

// startWithin bounds how long Open waits for a store, and for the policies.
const startWithin = 10 * time.Second

// start does the work in the background.
func (l *Limiter) start(ctx context.Context, follow func(context.Context) error, prepare func(context.Context)) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	if prepare != nil {
		l.inBackground("migration", func() { prepare(work) })
	}
	join, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if err := l.service.Leases().Join(join); err != nil {
		l.rules.log.Warn("could not read the registry of requests in flight; retrying", "error", err)
	}
	l.inBackground("store", func() { l.store.Run(work) })
	l.inBackground("leases", func() { l.service.Leases().Run(work) })
	if l.source != nil {
		l.inBackground("policies", func() { l.source.Run(work) })
	}
	l.inBackground("renewal", func() { l.held.run(work, l.renew) })
	if follow != nil {
		l.inBackground("rules", func() {
			if err := follow(work); err != nil && work.Err() == nil {
				l.rules.log.Error("the files of rules cannot be followed any more", "error", err)
			}
		})
	}
}

func (l *Limiter) inBackground(where string, f func()) {
	l.running.Add(1)
	l.panics.Go(where, func() {
		defer l.running.Done()
		f()
	})
}

// prepare makes the store ready, or returns what does so as soon as the store answers. It returns an
// error only if retrying does not help.
func (l *Limiter) prepare(ctx context.Context, opt *Options) (later func(work context.Context), err error) {
	migrate := !opt.NoMigrate && stack.HasSchema(opt.Backend)
	try := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, startWithin)
		defer cancel()
		return l.store.Prepare(ctx, migrate)
	}
	err = try(ctx)
	switch {
	case errors.Is(err, backends.ErrMisconfigured):
		return nil, fmt.Errorf("headgate: Options.Backend: %w", err)
	case err == nil:
		return nil, nil
	}
	l.rules.log.Warn("the backend does not answer at the start; retrying", "error", err)
	if !migrate {
		return nil, nil
	}
	return func(work context.Context) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for try(work) != nil {
			select {
			case <-work.Done():
				return
			case <-tick.C:
			}
		}
	}, nil
}

// SetRules replaces the rules. Counters keep their state. If one of the rules cannot be
// used, SetRules returns an error and changes nothing.
func (l *Limiter) SetRules(list ...Rules) error {
	c := l.enter()
	if c == nil {
		return ErrClosed
	}
	defer l.leave(c)
	set, err := l.rules.load(list)
	if err != nil {
		return err
	}
	return l.install(set)
}

func (l *Limiter) install(set *descriptors.Set) error { return l.service.SetRules(set) }

// endWithin bounds how long Close waits for leases to be given back.
const endWithin = 2 * time.Second

// Close ends the limiter. Calls that have begun are answered first, others fail with [ErrClosed]. Held leases end,
// reservations by on_lost: stop your servers before. It may be called more than once, and returns when all is ended.
func (l *Limiter) Close() error {
	<-l.gate.close()
	var err error
	l.closing.Do(func() {
		l.withdraw()
		l.stop()
		l.running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), endWithin)
		defer cancel()
		left := l.held.takeAll()
		l.end(ctx, left...)
		for i := range left {
			l.service.EndReservation(ctx, &left[i], ratelimit.Unsettled, 0) // what it has cost is not known
		}
		err = l.closeStore()
	})
	return err
}

func (l *Limiter) closeStore() error {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	l.service.Close(ctx)
	return errors.Join(l.store.Close(), l.closePolicies())
}
