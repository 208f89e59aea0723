package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/candidate"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/insight"
)

// serveCase serves a case until standard input ends, and prints its address.
func serveCase(name, storeURL string) error {
	c, err := findCase(name)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serve, stop, err := c.server(storeURL)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	fmt.Println(l.Addr())
	if err := serve(l); !errors.Is(err, unary.ErrClosed) {
		return err
	}
	return nil
}

// server makes the case's server.
func (c benchCase) server(storeURL string) (serve func(net.Listener) error, stop func(), err error) {
	if c.empty {
		srv := grpc.NewServer()
		rls.RegisterRateLimitServiceServer(srv, emptyService{})
		return srv.Serve, srv.Stop, nil
	}
	service, metrics, closeStack, err := c.service(storeURL)
	if err != nil {
		return nil, nil, err
	}
	if c.grpc {
		srv := grpc.NewServer(transport.ServerCodec())
		transport.Register(srv, service, metrics.Requests("grpc"))
		return srv.Serve, func() { srv.Stop(); closeStack() }, nil
	}
	handler := transport.Handler(service, transport.ShouldRateLimit, metrics.Requests("unary"))
	if c.readLoop {
		handler = inReadLoop(handler)
	}
	srv, err := unary.New(unary.Config{Handlers: map[string]unary.Handler{transport.ShouldRateLimit.Path(): handler}})
	if err != nil {
		closeStack()
		return nil, nil, err
	}
	return srv.Serve, func() { _ = srv.Close(); closeStack() }, nil
}

// emptyService is the least that an RLS over grpc-go can do.
type emptyService struct {
	rls.UnimplementedRateLimitServiceServer
}

var emptyAnswer = &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}

func (emptyService) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return emptyAnswer, nil
}

// service is the service as `headgate serve` has it, on the same stack and with
// its settings by default, metrics included. The caller stops it.
func (c benchCase) service(storeURL string) (service *ratelimit.Service, m *ratelimit.Metrics, stop func(), err error) {
	set, spec, problems := rulefile.LoadSpec([]rulefile.Source{{Name: c.name, Data: []byte(c.yaml())}}, rulefile.Options{})
	if set == nil {
		return nil, nil, nil, fmt.Errorf("rules: %v", problems)
	}
	m = ratelimit.NewMetrics()
	st, err := c.openStack(storeURL)
	if err != nil {
		return nil, nil, nil, err
	}
	conf := ratelimit.Config{
		Backend: st.Backend, Caps: st.Caps, Local: st.Local, Log: slog.New(slog.DiscardHandler), Metrics: m,
		Now: st.Now, Encoder: messages.Encoder{}, Sinks: []ratelimit.Sink{insight.NewWatch()},
		Headers: ratelimit.Headers{RetryAfter: "Retry-After", Rule: "x-headgate-rule"},
		Margin:  2 * time.Millisecond,
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	if c.trial {
		k, err := onTrial(ctx, set)
		if err != nil {
			cancel()
			return nil, nil, nil, errors.Join(err, st.Close())
		}
		conf.Taps = []ratelimit.Tap{k}
		running.Go(func() { k.Run(ctx) })
	}
	if service, err = ratelimit.New(conf, set); err != nil {
		cancel()
		return nil, nil, nil, errors.Join(err, st.Close())
	}
	running.Go(func() { st.Run(ctx) })
	if c.reload > 0 {
		set = descriptors.Rebuild(nil, spec, new(descriptors.Problems))
		if err := service.SetRules(set); err != nil {
			cancel()
			return nil, nil, nil, errors.Join(err, st.Close())
		}
		running.Go(func() { c.reloadRules(ctx, service, spec, set) })
	}
	return service, m, func() { cancel(); running.Wait(); _ = st.Close() }, nil
}

// onTrial returns a candidate that decides by rules, with counters in memory.
func onTrial(ctx context.Context, set *descriptors.Set) (*candidate.Candidate, error) {
	st, err := stack.New(ctx, "memory://", stack.Options{})
	if err != nil {
		return nil, err
	}
	k, err := candidate.New(candidate.Config{Sample: 1, Service: ratelimit.Config{Backend: st.Backend, Caps: st.Caps,
		Local: st.Local, Now: st.Now, Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		return nil, err
	}
	return k, k.SetRules(set)
}

// reloadRules puts rules in force repeatedly, as when a control plane sends them: each time
// another route has changed, or all of them if nothing is kept of the rules before.
func (c benchCase) reloadRules(ctx context.Context, service *ratelimit.Service, spec *descriptors.Spec,
	set *descriptors.Set) {
	turn := 0
	for tick := time.Tick(c.reload); ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if c.whole {
			set = nil
		}
		set = descriptors.Rebuild(set, changed(spec, turn), new(descriptors.Problems))
		if err := service.SetRules(set); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

// changed returns rules that differ from spec in the rules of one route.
func changed(spec *descriptors.Spec, turn int) *descriptors.Spec {
	domain := *spec.Domains[0]
	domain.Rules = slices.Clone(domain.Rules)
	routes := len(domain.Rules) - 1 // the first rule is that of the calls
	route := *domain.Rules[1+turn%routes]
	domain.Rules[1+turn%routes] = &route
	return &descriptors.Spec{Domains: []*descriptors.DomainSpec{&domain}, Hash: uint64(turn)}
}

// openStack opens the store of the case with the layers that it has in a server.
func (c benchCase) openStack(storeURL string) (*stack.Stack, error) {
	conf := config.Define(pflag.NewFlagSet("", pflag.ContinueOnError))
	if c.redis {
		if storeURL == "" {
			return nil, errors.New("needs Redis")
		}
		conf.Backend = storeURL
	}
	st, err := stack.New(context.Background(), conf.Backend, stack.Options{
		Timeout: conf.BackendTimeout, Replicas: conf.Replicas, Observe: true,
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}
