package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/observe"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// A Stack is a store with its layers, and what goes with it.
type Stack struct {
	// Backend decides.
	Backend backends.Backend
	// Caps are what it promises.
	Caps backends.Caps
	// Local decides for rules with on_backend_error: local while the store
	// fails.
	Local backends.Backend
	// Registry is what replicas share beside the counters: the store's, or, if
	// it has none, this process's own.
	Registry backends.Registry

	clock  *clock
	opt    Options
	store  backends.Backend
	memory *memory.Backend    // decides in an outage
	parts  []backends.Backend // the store, its layers from the inside out, and Local if that is a layer, too
	names  []string           // of the layers
	calls  []backends.Figure  // about calls to the store
	tasks  []backends.Task    // of the layers
}

// New opens the store at rawURL, puts the layers around it, and makes what
// decides in an outage. A store elsewhere need not answer yet. It fails if the
// URL is wrong or a file that it names cannot be read. The caller runs
// [Stack.Run] and closes the stack.
func New(ctx context.Context, rawURL string, opt Options) (*Stack, error) {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	k, err := backends.KindOf(rawURL)
	if err != nil {
		return nil, err
	}
	caps, err := Caps(rawURL)
	if err != nil {
		return nil, err
	}
	common := backends.Options{Timeout: opt.Timeout, Replicas: opt.Replicas, Existing: opt.Existing, Log: opt.Log,
		Panics: opt.Panics, Now: time.Now}
	store, err := k.Open(ctx, rawURL, common)
	if err != nil {
		return nil, err
	}
	caps.Name += opt.NameSuffix
	s := &Stack{Caps: caps, Registry: registryOf(store), clock: newClock(), opt: opt, store: store}
	s.wrap(k, common)
	return s, nil
}

// wrap puts the layers around the store: the one that measures calls, if Options.Observe is set, and those of its kind.
func (s *Stack) wrap(k backends.Kind, common backends.Options) {
	s.memory = memory.New(memory.Config{Log: s.opt.Log})
	s.Backend, s.Local, s.parts = s.store, s.memory, []backends.Backend{s.store}
	if s.opt.Observe {
		m := observe.NewMetrics()
		s.Backend = observe.New(s.store, m.Recorder(s.Caps.Name), common.Now)
		s.calls, s.parts, s.names = m.Rows(), append(s.parts, s.Backend), []string{"observe"}
	}
	if k.Layers == nil { // a store in this process cannot be away, and has nothing to combine
		return
	}
	around := k.Layers(backends.Inside{Options: common, Caps: s.Caps, Store: s.store, Next: s.Backend, Memory: s.memory,
		Instants: s.Now})
	s.Backend, s.Local, s.tasks = around.Backend, around.Local, around.Tasks
	s.parts, s.names = append(s.parts, around.Layers...), append(s.names, around.Names...)
}

func registryOf(store backends.Backend) backends.Registry {
	if r, ok := store.(backends.Registrar); ok {
		return r.Registry()
	}
	return memory.NewRegistry(time.Now)
}

// Peers returns what this process shares with other replicas, nil if its store is its own.
func (s *Stack) Peers() backends.Registry {
	if _, ok := s.store.(backends.Registrar); ok && !s.Caps.Local {
		return s.Registry
	}
	return nil
}

// Now returns the instant to decide at where the store has no clock. It is the
// wall clock's, except that it never steps back. Windows that are shared by their
// names go by the wall clock: a replica whose clock was ahead for a moment would
// count apart from the others until its end.
func (s *Stack) Now() limit.Instant {
	if s.Caps.PlainWindows {
		return limit.InstantOf(time.Now())
	}
	return s.clock.now()
}

// Migrate brings the store's schema up to date, if it has one, and returns what was applied.
func (s *Stack) Migrate(ctx context.Context) (applied []string, err error) {
	if m, ok := s.store.(backends.Migrator); ok {
		return m.Migrate(ctx)
	}
	return nil, nil
}

// pings is how many times Prepare pings a store that does not answer in time: the first ping may also
// have to connect.
const pings = 3

// Prepare makes the store ready to decide: it migrates the schema if migrate is true, and pings the
// store, until ctx ends. It returns [backends.ErrMisconfigured] if retrying does not help; any other
// error may go away by itself.
func (s *Stack) Prepare(ctx context.Context, migrate bool) (err error) {
	if migrate {
		if _, err := s.Migrate(ctx); err != nil {
			return err
		}
	}
	for range pings {
		if err = s.store.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	return err
}

// List returns keys that have state, as [backends.Lister] says. The error is [backends.ErrUnsupported]
// if the store cannot list them.
func (s *Stack) List(ctx context.Context, after string, n int) (keys []limit.Key, next string, err error) {
	l, ok := s.store.(backends.Lister)
	if !ok {
		return nil, "", fmt.Errorf("%w: backend %s cannot list its keys", backends.ErrUnsupported, s.Caps.Title())
	}
	return l.List(ctx, after, n)
}

// Figures returns what the store, its layers and the fallback report
// themselves for metrics.
func (s *Stack) Figures() []backends.Figure {
	list := slices.Clone(s.calls)
	for _, p := range s.parts {
		if f, ok := p.(backends.Figured); ok {
			list = append(list, f.Figures()...)
		}
	}
	return list
}

// Slow says how the store keeps up with its callers if it answers, but for many of them too late; else "".
func (s *Stack) Slow() string {
	for _, p := range s.parts {
		if f, ok := p.(interface{ Slow() string }); ok {
			return f.Slow()
		}
	}
	return ""
}

// Answers reports whether the store has not been silent for long, as far as is known.
func (s *Stack) Answers() bool {
	return !slices.ContainsFunc(s.parts, func(p backends.Backend) bool {
		f, ok := p.(interface{ Answers() bool })
		return ok && !f.Answers()
	})
}

// Usual returns the p99 of the store's calls in the last seconds and how long callers wait; "" if there were no calls.
func (s *Stack) Usual() string {
	for _, p := range s.parts {
		if f, ok := p.(interface{ Usual() string }); ok {
			return f.Usual()
		}
	}
	return ""
}

// sweepEvery is how often expired state is dropped.
const sweepEvery = time.Second

// Run drops expired state as time passes, and does what the layers do in the background,
// until ctx ends.
func (s *Stack) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for _, t := range s.tasks {
		tasks.Add(1)
		s.opt.Panics.Go(t.Name, func() {
			defer tasks.Done()
			for ctx.Err() == nil { // again after a panic
				_ = s.opt.Panics.Do(t.Name, func() { t.Run(ctx) }) // it is reported
			}
		})
	}
	for background.Sleep(ctx, sweepEvery) == nil {
		s.sweep()
	}
}

// sweep drops what has expired in memories of this process.
func (s *Stack) sweep() {
	s.memory.Sweep(s.Now())
	for _, p := range s.parts {
		if m, ok := p.(backends.Sweeper); ok {
			m.Sweep(s.Now())
		}
	}
}

// Close closes the store, its layers and the fallback, without ending a Run.
func (s *Stack) Close() error { return errors.Join(s.Backend.Close(), s.Local.Close()) }
