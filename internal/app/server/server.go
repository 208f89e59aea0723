// Package server is everything that `headgate serve` runs: the listeners, the limits and
// the slots behind them, readiness, and the drain at the end.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/internal/app/capture"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/statsd"
	"github.com/headgate-rls/headgate/internal/app/tracing"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/jwks"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/handshake"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
	counters "github.com/headgate-rls/headgate/ratelimit/httpapi"
)

// Config is what a server is run with.
type Config struct {
	Settings *config.Config // as [config.Resolve] has checked them
	Log      *slog.Logger
	Version  string // of the program, for the log and the metrics
}

// A server is the running process.
type server struct {
	conf    *config.Config
	log     *slog.Logger
	version string
	metrics *serverMetrics
	panics  *background.Reporter
	phase   *phase
	limits  *limits
	capture *capture.Hub
	trial   *trial       // nil without --candidate
	slots   *slotService // nil without --slots

	statsd *statsd.Sender // nil without --statsd

	policies *policyService // nil without --policies
	jwts     *jwks.Verifier // nil without --admin-jwks

	bounds *bounds
	certs  *certWatch

	openGRPC  func() error
	endpoints []*endpoint
	https     []*httpServer
}

// Run serves until ctx ends, and then drains: health checks fail, and calls in flight
// finish within --drain-timeout. When it returns, every goroutine that it has started has
// ended, except handlers that go on after their calls were cut off. The error says why
// the server could not start, or what of it failed.
func Run(ctx context.Context, c Config) error {
	metrics := newMetrics(c.Version)
	if c.Settings.ReferenceMetrics {
		metrics.addReference(c.Log, c.Settings.StatsD.Address != "")
	}
	s := &server{
		conf: c.Settings, log: c.Log, version: c.Version,
		metrics: metrics,
		panics:  &background.Reporter{Log: c.Log, Count: metrics.panics.Count},
		phase:   newPhase(),
	}
	defer s.phase.endStreams()
	s.bounds = newBounds(metrics)
	s.certs = &certWatch{log: s.log, grpc: []string{s.conf.TLSCert, s.conf.ClientCA}}
	metrics.Add(certRow())
	spans, err := tracing.Open(ctx, c.Log, c.Version)
	if err != nil {
		return err
	}
	defer closeTracing(spans, c.Log)
	if spans != nil {
		metrics.Add(spans.Rows()...)
	}
	refusals := web.NewRefusals(s.log)
	metrics.Add(refusals.Rows()...)
	guard, verifier, err := newGuard(&s.conf.Admin, s.log, refusals)
	if err != nil {
		return err
	}
	s.jwts = verifier
	if s.policies, err = openPolicies(ctx, s.conf, guard, s.log, metrics); err != nil {
		return err
	}
	var inForce *policies.Set
	if s.policies != nil {
		defer s.policies.close()
		inForce = s.policies.Set
	}
	if s.capture, err = openCapture(s.conf, s.log, metrics); err != nil {
		return err
	}
	taps := []ratelimit.Tap{s.capture}
	if s.trial, err = openTrial(ctx, s.conf, s.log, metrics, s.panics, inForce); err != nil {
		return err
	}
	if s.trial != nil {
		defer s.trial.close()
		taps = append(taps, s.trial)
	}
	if s.limits, err = openLimits(ctx, s.conf, inForce, taps, s.log, metrics, s.panics, spans.Tracer()); err != nil {
		return err
	}
	defer s.limits.close()
	s.statsd = metrics.newStatsD(&s.conf.StatsD, s.log)
	if s.policies != nil {
		s.policies.handlers.Used = s.limits.service.UsesPolicy
	}
	if err := s.limits.prepare(ctx); err != nil {
		return err
	}
	if s.slots, err = openSlots(ctx, &s.conf.Slots, guard, s.log, metrics); err != nil {
		return err
	}
	if s.slots != nil {
		defer s.slots.close()
	}
	if err := s.listen(ctx, guard); err != nil {
		return err
	}
	s.limits.join(ctx)
	return s.serve(ctx)
}

func closeTracing(spans *tracing.Tracing, log *slog.Logger) {
	if err := spans.Close(); err != nil {
		log.Warn("spans were not sent", "error", err)
	}
}

// listen opens every listener, before any is served.
func (s *server) listen(ctx context.Context, guard *web.Guard) (err error) {
	admin, err := s.newAdminPaths(guard)
	if err != nil {
		return err
	}
	failed := failures{handshake.NewFailures(s.log)}
	s.metrics.Add(failed.Rows()...)
	grpc := &grpcFront{conf: s.conf, log: s.log, metrics: s.metrics, panics: s.panics, phase: s.phase,
		service: s.limits.service, bounds: s.bounds, failures: failed, certs: s.certs,
		handshakes: handshake.New(s.bounds.pool.Limit() / 8)}
	s.openGRPC = func() (err error) {
		s.endpoints, err = grpc.endpoints(ctx)
		return err
	}
	if !s.conf.BackendRequired {
		if err := s.openGRPC(); err != nil {
			return err
		}
	}
	https := &httpFronts{
		conf: s.conf, log: s.log, metrics: s.metrics, phase: s.phase, service: s.limits.service, slots: s.slots, admin: admin,
		bounds: s.bounds, failures: failed, certs: s.certs, turns: web.NewTurns(),
		page: admin.page, home: counters.Page(),
		ready: web.Readiness{Draining: s.phase.draining.Load, Parts: s.parts}, describe: s.limits.rules.describe,
	}
	s.metrics.Add(https.turns.Rows()...)
	if s.https, err = https.open(ctx); err != nil {
		s.closeListeners()
	}
	return err
}

// closeListeners closes those of endpoints that were never served.
func (s *server) closeListeners() {
	for _, e := range s.endpoints {
		_ = e.listener.Close()
	}
}

// parts are what the service needs.
func (s *server) parts() []web.Part {
	list := []web.Part{s.limits.part()}
	if s.slots != nil {
		list = append(list, s.slots.part())
	}
	if s.policies != nil {
		list = append(list, s.policies.part())
	}
	return append(list, s.limits.rules.part(), s.certs.part())
}

// serve returns when everything has ended: on ctx's end after a drain, or at once when
// something fails.
func (s *server) serve(ctx context.Context) (err error) {
	defer s.closeListeners()
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 8)
	var running tasks
	running.start(func() { s.limits.run(work, func(err error) { failed <- err }) })
	running.start(func() { s.capture.Run(work) })
	if s.statsd != nil {
		running.start(func() { s.statsd.Run(work) })
	}
	if s.trial != nil {
		running.start(func() { s.trial.run(work) })
	}
	if s.slots != nil {
		running.start(func() { s.slots.run(work) })
	}
	if s.policies != nil {
		running.start(func() { s.policies.Run(work) })
	}
	if s.jwts != nil {
		running.start(func() { s.jwts.Run(work) })
	}
	running.start(func() { s.certs.run(work) })
	s.startHTTP(&running, failed)
	s.awaitRules(ctx)
	if err = s.awaitBackend(ctx, failed); err == nil && len(s.endpoints) > 0 {
		s.startGRPC(&running, failed)
		if s.conf.XDS.Health == config.HealthNeedsRules {
			running.start(func() { s.becomeHealthy(work) })
		} else {
			s.phase.serve()
		}
		s.announce()
		err = s.untilEnd(ctx, failed)
	}
	stop()
	closeServers(s.https)
	running.wait()
	return err
}

// untilEnd returns when ctx ends, after a drain, or at once when something fails.
func (s *server) untilEnd(ctx context.Context, failed <-chan error) error {
	select {
	case <-ctx.Done():
		s.drain()
		return nil
	case err := <-failed:
		for _, e := range s.endpoints {
			e.stop()
		}
		return err
	}
}

// awaitBackend opens the gRPC port when the backend has answered, if the port must wait for that. If ctx ends first,
// there are no endpoints.
func (s *server) awaitBackend(ctx context.Context, failed <-chan error) error {
	if !s.conf.BackendRequired {
		return nil
	}
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	for {
		select {
		case <-s.limits.answered:
			return s.openGRPC()
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-patience.C:
			s.log.Warn("the gRPC port opens when the backend answers, because of --backend-required", "backend",
				s.limits.store.Caps.Name)
		}
	}
}

// becomeHealthy has health checks succeed as soon as there are rules.
func (s *server) becomeHealthy(ctx context.Context) {
	select {
	case <-s.limits.rules.first():
		s.phase.serve()
	case <-ctx.Done():
	}
}

func (s *server) startHTTP(running *tasks, failed chan<- error) {
	for _, h := range s.https {
		running.start(func() {
			if err := h.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s server: %w", h.name, err)
			}
		})
	}
}

func (s *server) startGRPC(running *tasks, failed chan<- error) {
	for _, e := range s.endpoints {
		running.start(func() {
			if err := e.serve(e.listener); err != nil {
				failed <- fmt.Errorf("%s: %w", e.name, err)
			}
		})
	}
}

// drain fails health checks so that callers go elsewhere, keeps answering
// meanwhile, then lets calls in flight finish, within bounds.
func (s *server) drain() {
	s.log.Info("draining", "delay", s.conf.DrainDelay, "timeout", s.conf.DrainTimeout)
	s.phase.drain()
	time.Sleep(s.conf.DrainDelay)
	s.phase.endStreams() // health watches would never end by themselves
	ctx, cancel := context.WithTimeout(context.Background(), s.conf.DrainTimeout)
	defer cancel()
	var draining tasks
	for _, e := range s.endpoints {
		draining.start(func() {
			if err := e.drain(ctx); err != nil {
				s.log.Warn("drain timeout: canceling calls in flight", "endpoint", e.name)
			}
		})
	}
	draining.wait()
	s.log.Info("drained")
}

// announce says how much memory there is, where the service listens, and, for the example, what to try.
func (s *server) announce() {
	s.bounds.log(s.log)
	args := []any{s.endpoints[0].name, s.endpoints[0].listener.Addr().String()}
	for _, h := range s.https {
		args = append(args, h.name, h.listener.Addr().String())
	}
	for _, e := range s.endpoints[1:] {
		args = append(args, e.name, e.listener.Addr().String())
	}
	args = append(args, "backend", s.limits.store.Caps.Name, "rules", s.limits.rules.String(), "version", s.version)
	if s.slots != nil {
		args = append(args, "slots", s.slots.db.Address().Shown)
	}
	if s.policies != nil {
		args = append(args, "policies", s.policies.Store.Address())
	}
	s.log.Info("serving", args...)
	if s.conf.Example {
		s.log.Info("serving the built-in example; try `headgate ask example client=alice -n 7` in another terminal")
	}
}
