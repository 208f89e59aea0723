package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/internal/san"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/accesslog"
	"github.com/headgate-rls/headgate/ratelimit/unary"
)

// An endpoint is one gRPC listener.
type endpoint struct {
	name     string
	listener net.Listener
	serve    func(net.Listener) error // until stopped or drained, then nil
	drain    func(context.Context) error
	stop     func()
}

// Bounds of a connection, for either transport.
const (
	maxStreams    = 1 << 10
	maxHeld       = 16 << 20 // bytes of requests in memory, by the unary transport
	maxHeaders    = 32 << 10 // bytes
	connectWithin = 10 * time.Second
	pingAnswer    = 20 * time.Second
	closeWithin   = 2 * time.Second // for handlers to return when their calls are cut off
)

// endpoints opens the gRPC listeners: the service itself, by the transport
// that is configured, and where that is unary what it does not serve.
func (s *server) endpoints(ctx context.Context) ([]*endpoint, error) {
	conf, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}
	l, err := listen(ctx, "grpc", s.conf.GRPC, s.socketMode())
	if err != nil {
		return nil, err
	}
	if s.conf.Transport == "grpc" {
		return []*endpoint{s.grpcEndpoint("grpc", l, conf, true)}, nil
	}
	main, err := s.unaryEndpoint(l, conf)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	if s.conf.Services == "" {
		return []*endpoint{main}, nil
	}
	rest, err := listen(ctx, "services", s.conf.Services, s.socketMode())
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return []*endpoint{main, s.grpcEndpoint("services", rest, conf, false)}, nil
}

func (s *server) tlsConfig() (*tls.Config, error) {
	if s.conf.TLSCert == "" {
		return nil, nil
	}
	clients, err := san.Parse(s.conf.ClientSANs)
	if err != nil {
		return nil, err // was checked at start
	}
	return serverTLS(&certFiles{flags: "grpc", cert: s.conf.TLSCert, key: s.conf.TLSKey, clientCA: s.conf.ClientCA, clients: clients, log: s.log})
}

// unaryEndpoint serves the rate-limit service and health checks by package
// unary.
func (s *server) unaryEndpoint(l net.Listener, conf *tls.Config) (*endpoint, error) {
	hint := ""
	if s.conf.Services != "" {
		hint = "other services are served on " + s.conf.Services
	}
	u, err := unary.New(unary.Config{
		Handlers: map[string]unary.Handler{
			ratelimit.Method:                     ratelimit.UnaryHandler(s.service, s.metrics.Requests("unary")),
			healthpb.Health_Check_FullMethodName: {Inline: s.checkHealth},
		},
		UnknownHint:          hint,
		Identify:             ratelimit.Identity,
		MaxMessageSize:       ratelimit.MaxMessageSize,
		MaxHeaderListSize:    maxHeaders,
		MaxConcurrentStreams: maxStreams,
		MaxHeld:              maxHeld,
		ReadTimeout:          connectWithin,
		KeepaliveInterval:    s.conf.Keepalive,
		KeepaliveTimeout:     pingAnswer,
		MaxConnectionAge:     s.conf.MaxConnectionAge,
		Grace:                s.conf.MaxConnectionAgeGrace,
		CloseTimeout:         closeWithin,
		Log:                  s.log,
		Panics:               s.panics(),
	})
	if err != nil {
		return nil, err
	}
	s.metrics.AddUnary(u.Stats)
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	serve := func(l net.Listener) error {
		if err := u.Serve(l); !errors.Is(err, unary.ErrClosed) {
			return err
		}
		return nil
	}
	return &endpoint{name: "grpc", listener: l, serve: serve, drain: u.Shutdown, stop: func() { _ = u.Close() }}, nil
}

// checkHealth answers grpc.health.v1.Health/Check.
func (s *server) checkHealth(ctx context.Context, calls []*unary.Call) []*unary.Call {
	for _, c := range calls {
		var req healthpb.HealthCheckRequest
		if err := proto.Unmarshal(c.Message, &req); err != nil {
			c.Err = &unary.Status{Code: unary.InvalidArgument, Message: "not a HealthCheckRequest"}
			continue
		}
		resp, err := s.health.Check(ctx, &req)
		if err == nil {
			c.Reply, err = proto.MarshalOptions{}.MarshalAppend(c.Reply, resp)
		}
		if err != nil {
			st := status.Convert(err)
			c.Err = &unary.Status{Code: unary.Code(st.Code()), Message: st.Message()}
		}
	}
	return nil
}

// maxLogMessage bounds a message of Envoy's access log, in bytes: it flushes
// its buffer, by default of 16 KiB, when that is full.
const maxLogMessage = 4 << 20

// grpcEndpoint serves health, reflection and the access log, and the
// rate-limit service if main, by grpc-go.
func (s *server) grpcEndpoint(name string, l net.Listener, conf *tls.Config, main bool) *endpoint {
	opts := []grpc.ServerOption{
		ratelimit.ServerCodec(),
		grpc.MaxRecvMsgSize(maxLogMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectWithin),
		grpc.StreamInterceptor(s.boundStream),
		grpc.StatsHandler(s.metrics.GRPCStats(name)),
		grpc.UnknownServiceHandler(unknownMethod), // else its answers would not be counted
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      s.conf.MaxConnectionAge,
			MaxConnectionAgeGrace: s.conf.MaxConnectionAgeGrace,
			// A proxy whose host is gone is noticed within the grace time.
			Time:    min(s.conf.Keepalive, max(s.conf.OwnerGrace/3, time.Second)),
			Timeout: min(pingAnswer, max(s.conf.OwnerGrace/3, time.Second)),
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if conf != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(conf)))
	}
	if main {
		opts = append(opts, ratelimit.ReadBeforeEnd())
		l = ratelimit.Listener(l)
	}
	g := grpc.NewServer(opts...)
	if main {
		ratelimit.Register(g, s.service, s.metrics.Requests("grpc"))
	}
	accesslog.Register(g, s.service, accesslog.Config{
		Keys: s.conf.LeaseKeys, MaxStreams: s.conf.AccessLogs, MaxStreamsPerPeer: s.conf.AccessLogsPerPeer, Timeout: s.conf.BackendTimeout, Log: s.log, Count: s.metrics.AccessLog, Panics: s.panics(),
	})
	healthpb.RegisterHealthServer(g, s.health)
	reflection.Register(g)
	return &endpoint{name: name, listener: l, serve: serveGRPC(g), drain: drainGRPC(g), stop: g.Stop}
}

// unknownMethod answers calls of methods that are not served here.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Error(codes.Unimplemented, "unknown method "+method)
}

func serveGRPC(g *grpc.Server) func(net.Listener) error {
	return func(l net.Listener) error {
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("grpc server: %w", err)
		}
		return nil
	}
}

func drainGRPC(g *grpc.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		done := make(chan struct{})
		go func() { g.GracefulStop(); close(done) }()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			g.Stop()
			select {
			case <-done:
			case <-time.After(closeWithin): // a handler does not return
			}
			return ctx.Err()
		}
	}
}

// boundStream ends a stream's context when the server wants streams to end.
func (s *server) boundStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	var err error
	if s.panics().Do("stream", func() { err = handler(srv, boundStream{stream, ctx}) }) != nil {
		return status.Error(codes.Internal, "the handler failed")
	}
	return err
}

type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (b boundStream) Context() context.Context { return b.ctx }
