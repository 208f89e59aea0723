package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/persecond"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/fleet"
	"github.com/headgate-rls/headgate/ratelimit/insight"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// limits is the part of the server that decides requests: the rules, the store of the
// counters, and the service that brings them together.
type limits struct {
	conf    *config.Config
	log     *slog.Logger
	rules   ruleSource
	store   *stack.Stack
	second  *stack.Stack // of limits per second, which store asks; nil without --backend-per-second
	service *ratelimit.Service
	watch   *insight.Watch
	fleet   *fleet.Fleet
	backend condition
	formats formatWatch
	removed metrics.Counter // domains that the control plane removed while they were asked about
	pinged  atomic.Int64    // how long the backend took to answer the last time, in ns
	// answered is closed when the backend has answered for the first time.
	answered   chan struct{}
	answerOnce sync.Once
	// migrated: the store's schema is as it should be, or not this process's business.
	migrated bool
}

// openLimits loads the rules and opens the store, which need not answer at this moment.
func openLimits(ctx context.Context, s *server) (*limits, error) {
	conf, log, metrics, panics := s.conf, s.log, s.metrics, s.panics
	l := &limits{conf: conf, log: log, migrated: !conf.BackendMigrate, watch: insight.NewWatch(),
		answered: make(chan struct{})}
	if err := chooseRules(l.conf); err != nil {
		return nil, err
	}
	caps, err := stack.Caps(l.conf.Backend)
	if err != nil {
		return nil, fmt.Errorf("--backend: %w", err)
	}
	if conf.Limits.CalendarMonths {
		month := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: units.Month, Calendar: true})
		if err := caps.Check(month); err != nil {
			return nil, fmt.Errorf("--calendar-months: %w", err)
		}
	}
	if err := l.openRules(&caps, metrics, panics); err != nil {
		return nil, err
	}
	if err := l.openStores(ctx, metrics, panics); err != nil {
		return nil, err
	}
	service := l.serviceConfig(s)
	if l.service, err = ratelimit.New(service, l.rules.begin); err != nil {
		l.closeStore()
		return nil, err
	}
	l.formats = formatWatch{registry: l.store.Peers(), version: s.version, serving: service.LaterByRule,
		metLater: l.service.MetLater, log: log}
	metrics.Add(l.service.Leases().Rows()...)
	metrics.Add(l.service.Coverage().Rows()...)
	name, _ := os.Hostname() // people know this replica by it; without one its number has to do
	l.fleet = fleet.New(fleet.Config{Watch: l.watch, Registry: l.store.Peers(), Replica: service.Replica, Name: name,
		Log: log})
	metrics.Add(l.fleet.Rows()...)
	for _, a := range s.additions {
		if a.serves != nil {
			a.serves(l)
		}
	}
	l.warnOfPolicies(l.rules.begin)
	note := FailureNote(l.service.Rules(), &l.store.Caps)
	if note != "" && conf.OnBackendError == config.ByStore {
		l.log.Info("the default of --on-backend-error is deny", "rules", note)
	}
	return l, nil
}

// openRules opens the source of the rules: a control plane, files, or none.
func (l *limits) openRules(caps *backends.Caps, metrics *serverMetrics, panics *background.Reporter) (err error) {
	switch {
	case l.conf.XDS.Address != "":
		l.rules, err = openXDS(&l.conf.XDS, caps, l.log, metrics, panics, l.installSent)
		metrics.Add(removedRow(&l.removed))
	case hasRules(l.conf):
		l.rules, err = loadRules(l.conf, caps, l.log, metrics, l.install)
	default:
		l.log.Warn("no rules: only slots are served, and a call that asks for a limit gets an error")
		l.rules = noRules()
	}
	return err
}

// serviceConfig returns how the service decides, by the settings, the store and the additions of s.
func (l *limits) serviceConfig(s *server) ratelimit.Config {
	c := l.conf.Decisions()
	c.Backend, c.Caps, c.Local, c.Now = l.store.Backend, l.store.Caps, l.store.Local, l.store.Now
	c.Registry, c.Log, c.Replica = l.store.Registry, l.log, rand.Uint32()
	c.Encoder = messages.Encoder{}
	if secrets := strings.Fields(l.conf.LeaseSecret); len(secrets) > 0 { // else replicas agree on one in the store
		c.Leases = leases.NewSigner([]byte(secrets[len(secrets)-1]))
		c.Leases.Prefer([]byte(secrets[0]))
	}
	c.Metrics, c.Panics = s.metrics.decisions, s.panics
	c.Sinks, c.RulesChanged = []ratelimit.Sink{l.watch}, l.watch.RulesChanged
	if s.metrics.reference != nil {
		c.Sinks = append(c.Sinks, s.metrics.reference)
	}
	c.Policies, c.Tracer = s.policies(), first(s, func(a *addition) ratelimit.Tracer { return a.tracer })
	for _, a := range s.additions {
		if a.tap != nil {
			c.Taps = append(c.Taps, a.tap)
		}
	}
	return c
}

// openStores opens the store, and a second one for limits per second if there is one.
func (l *limits) openStores(ctx context.Context, metrics *serverMetrics, panics *background.Reporter) (err error) {
	opt := stack.Options{Timeout: l.conf.BackendTimeout, Existing: !l.conf.BackendMigrate, Replicas: l.conf.Replicas,
		Observe: true, Log: l.log, Panics: panics}
	if l.store, err = stack.New(ctx, l.conf.Backend, opt); err != nil {
		return fmt.Errorf("%s: %w", storeFlags[0], err)
	}
	if l.conf.PerSecond == "" {
		metrics.addFigures(l.store.Figures(), nil)
		return nil
	}
	if l.second, err = persecond.Divide(ctx, l.store, l.conf.PerSecond, opt); err != nil {
		l.closeStore()
		return fmt.Errorf("%s: %w", storeFlags[1], err)
	}
	metrics.addFigures(l.store.Figures(), l.second.Figures())
	return nil
}

// storeFlags name the stores in errors, in the order of limits.stores.
var storeFlags = [...]string{"--backend", "--backend-per-second"}

// stores are the store, and the second one if there is one.
func (l *limits) stores() []*stack.Stack {
	if l.second == nil {
		return []*stack.Stack{l.store}
	}
	return []*stack.Stack{l.store, l.second}
}

// apart returns what reports whether one of two stores is silent, so that requests to the other one do not wait for it;
// nil if there is one store, for which all wait.
func (l *limits) apart() func() bool {
	if l.second == nil {
		return nil
	}
	return func() bool { return !l.store.Answers() || !l.second.Answers() }
}

// install puts new rules in force.
func (l *limits) install(set *descriptors.Set) error {
	if err := l.service.SetRules(set); err != nil {
		return err
	}
	l.warnOfPolicies(set)
	return nil
}

// installSent puts rules of the control plane in force. It is believed if it removes a domain, but no request of that
// domain is limited any more, which nobody may want while there are such requests.
func (l *limits) installSent(set *descriptors.Set) error {
	gone := l.goneInUse(set)
	if err := l.install(set); err != nil || len(gone) == 0 {
		return err
	}
	l.removed.Add(int64(len(gone)))
	l.log.Warn("the control plane has removed domains in use: their requests are not limited any more", "removed",
		len(gone), "domains", strings.Join(gone[:min(len(gone), maxNamed)], " "))
	return nil
}

// inUse is how long ago a domain was asked about that is in use, and maxNamed how many of them the log names.
const (
	inUse    = time.Minute
	maxNamed = 20
)

// goneInUse returns the domains in use that new rules lack.
func (l *limits) goneInUse(set *descriptors.Set) []string {
	now := l.service.Rules()
	if now == nil {
		return nil
	}
	gone := map[string]bool{} // whether they are in use
	for _, domain := range now.Domains() {
		gone[domain] = false
	}
	for _, domain := range set.Domains() {
		delete(gone, domain)
	}
	if len(gone) == 0 {
		return nil
	}
	for _, shape := range l.service.Coverage().Shapes() {
		if _, is := gone[shape.Domain]; is && time.Since(shape.Last()) < inUse {
			gone[shape.Domain] = true
		}
	}
	maps.DeleteFunc(gone, func(_ string, used bool) bool { return !used })
	return slices.Sorted(maps.Keys(gone))
}

// warnOfPolicies says that rules ask for policies where there are none. The example need not have
// them.
func (l *limits) warnOfPolicies(set *descriptors.Set) {
	if l.conf.Policies.URL != "" || l.conf.Example || set == nil {
		return
	}
	for _, r := range set.Rules() {
		if r.Policy != nil {
			l.log.Warn("a rule has policy:, and --policies is not set: its own limit holds", "rule", r.Domain+"/"+r.Path,
				"policy", r.Policy)
			return
		}
	}
}

// migrateWithin bounds one try to bring the store's schema up to date.
const migrateWithin = time.Minute

// migrate brings the schemas of the stores up to date, unless that has been done.
func (l *limits) migrate(ctx context.Context) error {
	if l.migrated {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, migrateWithin)
	defer cancel()
	for _, store := range l.stores() {
		if _, err := store.Migrate(ctx); err != nil {
			return err
		}
	}
	l.migrated = true
	return nil
}

// startWithin bounds, with the time of a call, how long a store that does not answer holds up the start.
const startWithin = 10 * time.Second

// prepare makes the store ready, if it answers. It returns an error only if retrying does not help:
// without the store the service starts, and joins the other replicas when the store answers.
func (l *limits) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.conf.BackendTimeout+startWithin)
	defer cancel()
	var err error
	for i, store := range l.stores() {
		if e := store.Prepare(ctx, !l.migrated); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", storeFlags[i], e))
		}
	}
	switch {
	case errors.Is(err, backends.ErrMisconfigured):
		return err
	case err != nil:
		l.log.Warn("the backend does not answer at the start; retrying", "error", err)
	default:
		l.migrated = true
	}
	return nil
}

// join makes the service one of the replicas that there are.
func (l *limits) join(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.conf.BackendTimeout)
	defer cancel()
	l.formats.check(ctx)
	if err := l.service.Leases().Join(ctx); err != nil {
		l.log.Warn("could not read the registry of requests in flight; retrying", "error", err)
	}
}

// run does the work in the background until ctx ends. It calls fail if rules cannot be
// followed any more.
func (l *limits) run(ctx context.Context, fail func(error)) {
	var running sync.WaitGroup
	running.Go(func() { l.watchBackend(ctx) })
	for _, store := range l.stores() {
		running.Go(func() { store.Run(ctx) })
	}
	running.Go(func() { l.formats.run(ctx) })
	running.Go(func() { l.service.Leases().Run(ctx) })
	running.Go(func() { l.fleet.Run(ctx) })
	if err := l.rules.run(ctx); err != nil {
		fail(err)
	}
	running.Wait()
}

// watchBackend keeps l.backend true to whether the backend answers.
func (l *limits) watchBackend(ctx context.Context) {
	l.backend.watch(ctx, func(ctx context.Context) error {
		if err := l.migrate(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 2*l.conf.BackendTimeout) // it may have to connect, too
		defer cancel()
		began := time.Now()
		err := l.store.Backend.Ping(ctx)
		if err == nil {
			l.pinged.Store(int64(time.Since(began)))
			l.answerOnce.Do(func() { close(l.answered) })
		}
		return err
	}, l.backendChanged)
}

// slow says of which store callers do not get answers in time, and how; "" of none.
func (l *limits) slow() string {
	for _, store := range l.stores() {
		if slow := store.Slow(); slow != "" {
			return slow
		}
	}
	return ""
}

// part reports whether the backend answers, and does so in time.
func (l *limits) part() web.Part {
	part := web.Part{Name: "backend " + l.store.Caps.Name, Shared: true}
	if problem, away := l.backend.problem(); away {
		part.Problem = problem
	} else if slow := l.slow(); slow != "" {
		part.Problem, part.Serving = "slow: "+slow, true
	} else if usual := l.store.Usual(); usual != "" {
		part.Detail = usual
	} else if took := time.Duration(l.pinged.Load()); took > 0 && !l.store.Caps.Local {
		part.Detail = fmt.Sprintf("answered a ping in %v", took.Round(10*time.Microsecond))
	}
	return part
}

// reservations says which rules with reserve have reserved nothing of late.
func (l *limits) reservations() web.Part {
	part := web.Part{Name: "reservations", Serving: true}
	list := l.service.NeverReserving()
	if len(list) == 0 {
		return part
	}
	r := &list[0]
	part.Problem = fmt.Sprintf("rule %s/%s reserves nothing, in %s: %s", r.Domain, r.Rule,
		spell.Count(int(r.Calls), "call"), r.Why)
	if len(list) > 1 {
		part.Problem += fmt.Sprintf(" (and %s: headgate coverage)", spell.Count(len(list)-1, "other rule"))
	}
	return part
}

func (l *limits) backendChanged(err error) {
	if err == nil {
		l.log.Info("the backend answers again", "backend", l.store.Caps.Name)
		return
	}
	l.log.Error("the backend does not answer; failure policies decide", "backend", l.store.Caps.Name, "error", err)
}

// giveBackWithin bounds how long the end waits for leases to be given back.
const giveBackWithin = 2 * time.Second

// close gives back leases and closes the store.
func (l *limits) close() {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackWithin)
	defer cancel()
	l.service.Close(ctx)
	l.closeStore()
}

func (l *limits) closeStore() {
	if err := l.store.Close(); err != nil {
		l.log.Warn("could not close the backend", "error", err)
	}
}

// FailureNote says which rules of set answer by the default of a store that denies on failure; "" if there are none.
func FailureNote(set *descriptors.Set, caps *backends.Caps) string {
	n := 0
	for _, r := range set.Rules() {
		if r.OnBackendError == descriptors.FailDefault && len(r.Limits) > 0 {
			n++
		}
	}
	if !caps.DenyOnFailure || n == 0 {
		return ""
	}
	return fmt.Sprintf("%s without on_backend_error: they refuse while %s fails, because it is a database", spell.Count(n,
		"rule"), caps.Title())
}
