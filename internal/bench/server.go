package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/combine"
	"github.com/headgate-rls/headgate/backends/denycache"
	"github.com/headgate-rls/headgate/backends/failover"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/backends/observe"
	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/telemetry"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/unary"
)

// serveCase serves a case until standard input ends, and prints its address.
func serveCase(name, redisURL string) error {
	c, err := findCase(name)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serve, stop, err := c.server(redisURL)
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
func (c benchCase) server(redisURL string) (serve func(net.Listener) error, stop func(), err error) {
	if c.empty {
		srv := grpc.NewServer()
		rls.RegisterRateLimitServiceServer(srv, emptyService{})
		return srv.Serve, srv.Stop, nil
	}
	service, metrics, err := c.service(redisURL)
	if err != nil {
		return nil, nil, err
	}
	if c.grpc {
		srv := grpc.NewServer(ratelimit.ServerCodec())
		ratelimit.Register(srv, service, metrics.Requests("grpc"))
		return srv.Serve, srv.Stop, nil
	}
	srv, err := unary.New(unary.Config{Handlers: map[string]unary.Handler{
		ratelimit.Method: ratelimit.UnaryHandler(service, metrics.Requests("unary")),
	}})
	if err != nil {
		return nil, nil, err
	}
	return srv.Serve, func() { _ = srv.Close() }, nil
}

// emptyService is the least that an RLS over grpc-go can do.
type emptyService struct {
	rls.UnimplementedRateLimitServiceServer
}

var emptyAnswer = &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}

func (emptyService) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return emptyAnswer, nil
}

// service is the service as `headgate serve` stacks it, metrics included.
func (c benchCase) service(redisURL string) (*ratelimit.Service, *telemetry.Metrics, error) {
	set, problems := descriptors.Load([]descriptors.Source{{Name: c.name, Data: []byte(c.yaml())}}, descriptors.Options{})
	if set == nil {
		return nil, nil, fmt.Errorf("rules: %v", problems)
	}
	log := slog.New(slog.DiscardHandler)
	m := telemetry.New("bench")
	local := memory.New(memory.Config{})
	var be backends.Backend = local
	caps := memory.Caps()
	if c.redis {
		if redisURL == "" {
			return nil, nil, errors.New("needs Redis")
		}
		conf, err := redis.Parse(redisURL)
		if err != nil {
			return nil, nil, err
		}
		caps = conf.Caps()
		driver, err := redis.Open(context.Background(), conf, log)
		if err != nil {
			return nil, nil, err
		}
		be = denycache.New(combine.New(failover.New(observe.New(driver, m.Backend(caps.Name), time.Now), failover.Config{}, time.Now), combine.Config{}),
			&caps, denycache.Config{}, time.Now)
	} else {
		be = observe.New(be, m.Backend(caps.Name), time.Now)
	}
	s, err := ratelimit.New(ratelimit.Config{
		Backend: be, Caps: caps, Local: local, Log: log, Metrics: m,
		Now:     func() limit.Instant { return limit.InstantOf(time.Now()) },
		Headers: ratelimit.Headers{RetryAfter: "Retry-After", Rule: "x-headgate-rule"},
		Margin:  2 * time.Millisecond,
	}, set)
	return s, m, err
}
