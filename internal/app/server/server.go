package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/handshake"
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
	guard   *web.Guard // in front of admin paths
	// refusals are requests over HTTP that were not let in.
	refusals *web.Refusals
	limits   *limits

	additions []*addition

	bounds *bounds
	turns  *web.Turns // of requests over HTTP
	certs  *certWatch

	grpcTLS    *tls.Config       // nil: without TLS
	handshakes *handshake.Bounds // of all gRPC listeners
	failures   failures
	endpoints  []*endpoint
	https      []*httpServer
}

// Run serves until ctx ends, and then drains: health checks fail, and calls in flight
// finish within --drain-timeout. When it returns, every goroutine that it has started has
// ended, except handlers that go on after their calls were cut off. The error says why
// the server could not start, or what of it failed.
func Run(ctx context.Context, c Config) error {
	metrics := newMetrics(c.Version)
	if c.Settings.ReferenceMetrics {
		metrics.addReference(c.Log, c.Settings)
	}
	s := &server{
		conf: c.Settings, log: c.Log, version: c.Version,
		metrics: metrics,
		panics:  &background.Reporter{Log: c.Log, Count: metrics.panics.Count},
		phase:   newPhase(),
	}
	defer s.phase.endStreams()
	s.bounds, s.turns = newBounds(metrics), web.NewTurns()
	metrics.Add(s.turns.Rows()...)
	s.certs = &certWatch{log: s.log, grpc: []string{s.conf.TLSCert, s.conf.ClientCA}}
	metrics.Add(append(s.certs.rows(), c.Settings.Log.Lost())...)
	if err := s.openGuard(); err != nil {
		return err
	}
	defer s.closeAdditions()
	for _, open := range openers {
		a, err := open(ctx, s)
		if err != nil {
			return err
		}
		if a != nil {
			s.additions = append(s.additions, a)
		}
	}
	var err error
	if s.limits, err = openLimits(ctx, s); err != nil {
		return err
	}
	defer s.limits.close()
	s.openStatsD()
	if err := s.limits.prepare(ctx); err != nil {
		return err
	}
	for _, a := range s.additions {
		if a.prepare != nil {
			if err := a.prepare(ctx); err != nil {
				return err
			}
		}
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	s.limits.join(ctx)
	return s.serve(ctx)
}

// listen opens every listener, before any is served; that of gRPC later if it must wait.
func (s *server) listen(ctx context.Context) (err error) {
	s.failures = failures{handshake.NewFailures(s.log)}
	s.metrics.Add(s.failures.Rows()...)
	s.handshakes = handshake.New(s.bounds.pool.Limit() / 8)
	if s.grpcTLS, err = s.tlsConfig(); err != nil {
		return err
	}
	if !s.opensLate() {
		if err := s.openGRPC(ctx); err != nil {
			return err
		}
	}
	if err = s.openHTTP(ctx); err != nil {
		closeServers(s.https)
		s.closeListeners()
	}
	return err
}

// opensLate reports whether the gRPC port waits for the backend, or for rules. Until it opens, connections are refused
// at once: on a port that is open and not served, Envoy's calls would wait for their deadlines.
func (s *server) opensLate() bool { return s.conf.BackendRequired || s.waitsForRules() }

// closeListeners closes those of endpoints that were never served.
func (s *server) closeListeners() {
	for _, e := range s.endpoints {
		_ = e.listener.Close()
	}
}

// parts are what the service needs.
func (s *server) parts() []web.Part {
	list := []web.Part{s.limits.part(), s.limits.formats.part()}
	if p := s.limits.reservations(); p.Problem != "" {
		list = append(list, p)
	}
	for _, a := range s.additions {
		if a.part != nil {
			list = append(list, a.part())
		}
	}
	list = append(list, s.limits.rules.part(), s.certs.part())
	if !s.phase.serving.Load() {
		list = append(list, web.Part{Name: "gRPC", Problem: "the port is not open yet: it waits for rules or the backend"})
	}
	return list
}

// serve returns when everything has ended: on ctx's end after a drain, or at once when
// something fails.
func (s *server) serve(ctx context.Context) (err error) {
	defer s.closeListeners()
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 8)
	var running sync.WaitGroup
	running.Go(func() { s.limits.run(work, func(err error) { failed <- err }) })
	for _, a := range s.additions {
		if a.run != nil {
			running.Go(func() { a.run(work) })
		}
	}
	running.Go(func() { s.certs.run(work) })
	s.startHTTP(&running, failed)
	s.awaitRules(ctx)
	err = s.awaitBackend(ctx, failed)
	if err == nil && s.opensLate() && ctx.Err() == nil {
		err = s.openGRPC(ctx)
	}
	if err == nil && len(s.endpoints) > 0 {
		s.startGRPC(&running, failed)
		if s.conf.XDS.Health == config.HealthNeedsRules {
			running.Go(func() { s.becomeHealthy(work) })
		} else {
			s.phase.serve()
		}
		s.announce()
		err = s.untilEnd(ctx, failed)
	}
	stop()
	closeServers(s.https)
	running.Wait()
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

// awaitBackend waits until the backend has answered, or ctx ends, if the gRPC port must wait for that.
func (s *server) awaitBackend(ctx context.Context, failed <-chan error) error {
	if !s.conf.BackendRequired {
		return nil
	}
	patience := time.After(time.Second)
	for {
		select {
		case <-s.limits.answered:
			return nil
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-patience:
			s.log.Warn("the gRPC port opens when the backend answers, because of --backend-required", "backend",
				s.limits.store.Caps.Name)
		}
	}
}

// becomeHealthy has health checks succeed as soon as there are rules.
func (s *server) becomeHealthy(ctx context.Context) {
	select {
	case <-s.limits.rules.first:
		s.phase.serve()
	case <-ctx.Done():
	}
}

func (s *server) startHTTP(running *sync.WaitGroup, failed chan<- error) {
	for _, h := range s.https {
		running.Go(func() {
			if err := h.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s server: %w", h.name, err)
			}
		})
	}
}

func (s *server) startGRPC(running *sync.WaitGroup, failed chan<- error) {
	for _, e := range s.endpoints {
		running.Go(func() {
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
	var draining sync.WaitGroup
	for _, e := range s.endpoints {
		draining.Go(func() {
			if err := e.drain(ctx); err != nil {
				s.log.Warn("drain timeout: canceling calls in flight", "endpoint", e.name)
			}
		})
	}
	draining.Wait()
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
	args = append(args, "backend", s.limits.store.Caps.Name, "rules", s.limits.rules.name, "version", s.version)
	for _, a := range s.additions {
		if a.where != "" {
			args = append(args, a.name, a.where)
		}
	}
	s.log.Info("serving", args...)
	if s.conf.Example {
		s.log.Info("serving the built-in example; try `headgate ask example client=alice -n 7` in another terminal")
	}
}
