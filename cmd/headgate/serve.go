package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/config"
	"github.com/headgate-rls/headgate/internal/safego"
	"github.com/headgate-rls/headgate/internal/telemetry"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/lease"
)

//go:embed example.yaml
var exampleRules []byte

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve rate-limit decisions",
		Long: `Serve rate-limit decisions by the rules in --rules, which are followed as they
change.

Every flag can also be set in the environment (--log-level as
HEADGATE_LOG_LEVEL; several values separated by commas) and in the YAML file
that --config names (log-level: warn). A flag beats the environment, which
beats the file. Put secrets, such as the password in --backend, into the
environment or the file: other users of the machine can see flags.`,
		Example: `  headgate serve --example
  headgate serve --rules rules/ --backend redis://localhost:6379
  headgate serve --rules rules/ --grpc unix:/run/headgate/rls.sock`,
		Args: noArgs,
	}
	cmd.Flags().SortFlags = false
	conf := config.Define(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := config.Resolve(cmd.Flags(), conf, os.Environ()); err != nil {
			return err
		}
		return serve(cmd.Context(), conf, cmd.ErrOrStderr())
	}
	return cmd
}

// A server is the running process: what `serve` starts and stops.
type server struct {
	conf    *config.Config
	log     *slog.Logger
	metrics *telemetry.Metrics
	refused bool // the service did not take the last rules
	store   *store
	service *ratelimit.Service
	slots   *slotService         // nil without --slots
	watcher *descriptors.Watcher // nil for the built-in example
	health  *health.Server

	draining   atomic.Bool
	streams    context.Context // ends when streams must, while draining
	endStreams context.CancelFunc
	backend    condition
	rules      atomic.Pointer[descriptors.Outcome] // of the last reading; nil for the example
}

// serve runs the service until ctx ends, then drains it.
func serve(ctx context.Context, conf *config.Config, errOut io.Writer) error {
	s := &server{
		conf:    conf,
		log:     conf.Logger(errOut),
		metrics: telemetry.New(buildVersion()),
		health:  health.NewServer(),
	}
	s.streams, s.endStreams = context.WithCancel(context.Background())
	defer s.endStreams()
	if err := chooseRules(conf); err != nil {
		return err
	}
	set, err := s.loadRules()
	if err != nil {
		return err
	}
	s.store, err = openStore(ctx, storeConfig{
		url: conf.Backend, timeout: conf.BackendTimeout, replicas: conf.Replicas, log: s.log, metrics: s.metrics, panics: s.panics(),
	})
	if err != nil {
		return fmt.Errorf("--backend: %w", err)
	}
	defer s.store.close(s.log)
	if s.service, err = ratelimit.New(s.serviceConfig(), set); err != nil {
		return err
	}
	defer s.closeService()
	if s.slots, err = openSlots(ctx, conf, s.log, s.metrics); err != nil {
		return err
	}
	if s.slots != nil {
		defer s.slots.close()
	}
	s.metrics.AddInFlight(s.service)
	s.metrics.RulesLoaded(set, time.Now())
	return s.run(ctx)
}

// giveBackWithin bounds how long the end waits for leases to be given back.
const giveBackWithin = 2 * time.Second

func (s *server) closeService() {
	ctx, cancel := context.WithTimeout(context.Background(), giveBackWithin)
	defer cancel()
	s.service.Close(ctx)
}

// chooseRules decides which rules are served where --rules does not say.
func chooseRules(conf *config.Config) error {
	if len(conf.Rules) > 0 || conf.Example {
		return nil
	}
	if _, err := os.Stat(defaultRules); err != nil {
		return errors.New("there are no rules to serve: name files or directories with --rules (HEADGATE_RULES), or put them into ./" +
			defaultRules + "; to try headgate, --example serves a built-in example")
	}
	conf.Rules = []string{defaultRules}
	return nil
}

const defaultRules = "rules"

// loadRules does the first load, which must succeed.
func (s *server) loadRules() (*descriptors.Set, error) {
	opt := descriptors.Options{MergeDomains: s.conf.MergeDomains, DefaultLeaseTTL: s.conf.LeaseTTL}
	if s.conf.Example {
		set, problems := descriptors.Load([]descriptors.Source{{Name: "built-in example", Data: exampleRules}}, opt)
		if set == nil {
			return nil, problemsError(problems)
		}
		return set, nil
	}
	caps, err := backendCaps(s.conf.Backend)
	if err != nil {
		return nil, fmt.Errorf("--backend: %w", err)
	}
	s.watcher = descriptors.NewWatcher(s.conf.Rules, descriptors.WatchOptions{
		Options:   opt,
		Log:       s.log,
		Skip:      s.conf.RulesErrors == config.SkipRules,
		Check:     func(set *descriptors.Set) []descriptors.Problem { return ratelimit.CapProblems(set, &caps) },
		OnChange:  s.rulesChanged,
		OnOutcome: s.rulesRead,
	})
	set, warnings, err := s.watcher.Load()
	var bad *descriptors.LoadError
	if errors.As(err, &bad) {
		err = problemsError(bad.Problems)
		if s.conf.RulesErrors != config.SkipRules {
			err = fmt.Errorf("%w\nto start without the domains of such files: --rules-errors skip", err)
		}
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("--rules: %w", err)
	}
	s.warn(warnings)
	return set, nil
}

// rulesRead notes what came of reading the rules.
func (s *server) rulesRead(o *descriptors.Outcome) {
	s.metrics.RulesFileErrors(o.Errors())
	switch {
	case o.Err != nil:
		s.metrics.RulesFailed()
	case !s.refused:
		s.metrics.RulesRead()
	}
	s.rules.Store(o)
}

func (s *server) warn(warnings []descriptors.Problem) {
	for _, w := range warnings {
		s.log.Warn("rules: " + w.String())
	}
}

// rulesChanged puts new rules in force. The watcher has logged that they are
// new, but not what to warn of.
func (s *server) rulesChanged(set *descriptors.Set, warnings []descriptors.Problem) {
	s.warn(warnings)
	if err := s.service.SetRules(set); err != nil {
		s.log.Error("new rules cannot be kept by the backend; the old ones stay", "error", err)
		s.metrics.RulesFailed()
		s.refused = true
		return
	}
	s.refused = false
	s.store.rulesChanged()
	s.metrics.RulesLoaded(set, time.Now())
}

func (s *server) serviceConfig() ratelimit.Config {
	c := s.conf
	h := ratelimit.Headers{RetryAfter: c.RetryHeader, Rule: c.RuleHeader}
	if c.ResponseHeaders {
		h.Limit, h.Remaining, h.Reset = c.LimitHeader, c.RemainingHeader, c.ResetHeader
	}
	return ratelimit.Config{
		Backend: s.store.backend, Caps: s.store.caps, Local: s.store.fallback,
		Now: s.store.clock.now, Log: s.log, Metrics: s.metrics, Panics: s.panics(),
		Charge: c.ChargePolicy(), OnBackendError: c.FailurePolicy(), OnOverload: c.OverloadPolicy(),
		Timeout: c.BackendTimeout, Margin: c.DeadlineMargin,
		Headers: h, Metadata: c.DynamicMetadata, UnitMultipliers: c.UnitMultiplier,
		ShadowMode: c.ShadowMode, QuotaMode: c.QuotaMode,
		Registry: s.store.registry, Leases: s.leaseSigner(), Replica: rand.Uint32(), OwnerGrace: c.OwnerGrace,
	}
}

// leaseSigner signs by the secret that is configured; without one, replicas
// agree on one in the store.
func (s *server) leaseSigner() *lease.Signer {
	if s.conf.LeaseSecret == "" {
		return nil
	}
	return lease.NewSigner([]byte(s.conf.LeaseSecret))
}

// join makes the service one of the replicas that there are. Without the store
// it serves by itself, and joins them when the store is there.
func (s *server) join(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.conf.BackendTimeout)
	defer cancel()
	if err := s.service.Join(ctx); err != nil {
		s.log.Warn("the registry of requests in flight cannot be read; headgate tries again", "error", err)
	}
}

// run opens every listener before it serves on any, and returns when all have
// ended: on ctx's end after a drain, or at once when one of them fails.
func (s *server) run(ctx context.Context) error {
	endpoints, err := s.endpoints(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, e := range endpoints {
			_ = e.listener.Close() // in case it was never served
		}
	}()
	https, err := s.httpServers(ctx)
	if err != nil {
		return err
	}

	s.join(ctx)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 8)
	var running tasks
	running.start(func() { s.follow(work, failed) })
	running.start(func() { s.watchBackend(work) })
	running.start(func() { s.store.run(work) })
	running.start(func() { s.service.Run(work) })
	if s.slots != nil {
		running.start(func() { s.slots.run(work) })
	}
	for _, h := range https {
		running.start(func() {
			if err := h.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s server: %w", h.name, err)
			}
		})
	}
	for _, e := range endpoints {
		running.start(func() {
			if err := e.serve(e.listener); err != nil {
				failed <- fmt.Errorf("%s: %w", e.name, err)
			}
		})
	}
	s.setServing(true)
	s.announce(endpoints, https)

	select {
	case <-ctx.Done():
		s.drain(endpoints)
	case err = <-failed:
		for _, e := range endpoints {
			e.stop()
		}
	}
	stop()
	closeServers(https)
	running.wait()
	return err
}

// follow reloads rules as their files change.
func (s *server) follow(ctx context.Context, failed chan<- error) {
	if s.watcher == nil {
		return
	}
	if err := s.watcher.Run(ctx); err != nil && ctx.Err() == nil {
		failed <- fmt.Errorf("watch rules: %w", err)
	}
}

// drain fails health checks so that callers go elsewhere, keeps answering
// meanwhile, then lets calls in flight finish, within bounds.
func (s *server) drain(endpoints []*endpoint) {
	s.log.Info("draining", "delay", s.conf.DrainDelay, "timeout", s.conf.DrainTimeout)
	s.draining.Store(true)
	s.setServing(false)
	time.Sleep(s.conf.DrainDelay)
	s.endStreams() // health watches would never end by themselves
	ctx, cancel := context.WithTimeout(context.Background(), s.conf.DrainTimeout)
	defer cancel()
	var draining tasks
	for _, e := range endpoints {
		draining.start(func() {
			if err := e.drain(ctx); err != nil {
				s.log.Warn("calls were still in flight after the drain timeout and are cut off", "endpoint", e.name)
			}
		})
	}
	draining.wait()
	s.log.Info("drained")
}

// serviceName is what health checks of the reference service ask for.
const serviceName = "ratelimit"

func (s *server) setServing(ok bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ok {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	s.health.SetServingStatus(serviceName, status)
}

// watchBackend keeps s.backend true to whether the backend answers.
func (s *server) watchBackend(ctx context.Context) {
	s.backend.watch(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, s.conf.BackendTimeout)
		defer cancel()
		return s.store.backend.Ping(ctx)
	}, s.backendChanged)
}

func (s *server) backendChanged(err error) {
	if err == nil {
		s.log.Info("backend is back", "backend", s.store.caps.Name)
		return
	}
	s.log.Error("backend does not answer; failure policies decide", "backend", s.store.caps.Name, "error", err)
}

// announce says where the service listens, and, for the example, what to try.
func (s *server) announce(endpoints []*endpoint, https []*httpServer) {
	args := []any{endpoints[0].name, endpoints[0].listener.Addr().String()}
	for _, h := range https {
		args = append(args, h.name, h.listener.Addr().String())
	}
	for _, e := range endpoints[1:] {
		args = append(args, e.name, e.listener.Addr().String())
	}
	rules := "built-in example"
	if !s.conf.Example {
		rules = strings.Join(s.conf.Rules, ",")
	}
	args = append(args, "backend", s.store.caps.Name, "rules", rules, "version", buildVersion())
	if s.slots != nil {
		args = append(args, "slots", s.slots.db.Address().Shown)
	}
	s.log.Info("serving", args...)
	if s.conf.Example {
		s.log.Info("this is the built-in example: try `headgate ask example client=alice -n 7` in another terminal")
	}
}

// panics reports panics that are survived.
func (s *server) panics() *safego.Reporter {
	return &safego.Reporter{Log: s.log, Count: s.metrics.Panicked}
}
