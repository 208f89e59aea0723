package server

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
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/accesslog"
	"github.com/headgate-rls/headgate/internal/wire/handshake"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
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
	maxStreams = 1 << 10

	maxUnaryConnections = 1 << 14
	maxHeld             = 16 << 20 // bytes of requests in memory, by the unary transport
	maxHeaders          = 72 << 10 // bytes; a client's tracestate can have most of the 60 KiB that Envoy takes
	connectWithin       = 10 * time.Second
	pingAnswer          = 20 * time.Second
	closeWithin         = 2 * time.Second // for handlers to return when their calls are cut off
)

// boundCredentials are those of grpc-go's with bounds on their handshakes, and on what connections keep.
type boundCredentials struct {
	credentials.TransportCredentials
	bounds *handshake.Bounds
	failed func(client net.Addr, err error)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c boundCredentials) ServerHandshake(nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	bound := c.bounds.Conn(nc)
	defer bound.Done()
	safe, info, err := c.TransportCredentials.ServerHandshake(bound)
	if of := boundConnOf(nc.RemoteAddr()); err == nil && of != nil {
		safe = newMeteredConn(safe, of)
	}
	if err != nil {
		c.failed(nc.RemoteAddr(), err)
	}
	return safe, info, err
}

// Clone implements credentials.TransportCredentials.
func (c boundCredentials) Clone() credentials.TransportCredentials {
	return boundCredentials{c.TransportCredentials.Clone(), c.bounds, c.failed}
}

// openGRPC opens the gRPC listeners: the service itself, by the transport
// that is configured, and where that is unary what it does not serve.
func (s *server) openGRPC(ctx context.Context) error {
	l, err := web.Listen(ctx, "grpc", s.conf.GRPC, socketMode(s.conf))
	if err != nil {
		return err
	}
	if s.conf.Transport == "grpc" {
		s.endpoints = []*endpoint{s.grpcEndpoint("grpc", l, s.grpcTLS, true)}
		return nil
	}
	main, err := s.unaryEndpoint(l, s.grpcTLS)
	var rest net.Listener
	if err == nil && s.conf.Services != "" {
		rest, err = web.Listen(ctx, "services", s.conf.Services, socketMode(s.conf))
	}
	if err != nil {
		_ = l.Close()
		return err
	}
	s.endpoints = []*endpoint{main}
	if rest != nil {
		s.endpoints = append(s.endpoints, s.grpcEndpoint("services", rest, s.grpcTLS, false))
	}
	return nil
}

func (s *server) tlsConfig() (*tls.Config, error) {
	if s.conf.TLSCert == "" {
		return nil, nil
	}
	clients, err := certs.Parse(s.conf.ClientSANs)
	if err != nil {
		return nil, err // was checked at start
	}
	files := &certFiles{flags: "grpc", cert: s.conf.TLSCert, key: s.conf.TLSKey, clientCA: s.conf.ClientCA,
		protocols: []string{"h2"}, ifGiven: s.conf.ClientAuth == config.IfGiven, clients: clients, log: s.log}
	s.certs.follow(files)
	return serverTLS(files)
}

// unaryEndpoint serves the rate-limit service and health checks by package
// unary.
func (s *server) unaryEndpoint(l net.Listener, conf *tls.Config) (*endpoint, error) {
	hint := ""
	if s.conf.Services != "" {
		hint = "other services are served on " + s.conf.Services
	}
	handlers := transport.Handlers(s.limits.service, s.metrics.requests("unary"))
	handlers[healthpb.Health_Check_FullMethodName] = unary.Handler{Inline: s.checkHealth}
	handlers[healthpb.Health_Watch_FullMethodName] = unary.Handler{Inline: s.watchHealth}
	u, err := unary.New(unary.Config{
		Handlers:             handlers,
		UnknownHint:          hint,
		Alone:                s.limits.apart(),
		TLS:                  conf,
		Handshakes:           s.handshakes,
		Failures:             s.failures.Failures,
		Identify:             certs.Identity,
		MaxMessageSize:       messages.MaxMessageSize,
		MaxHeaderListSize:    maxHeaders,
		MaxConcurrentStreams: maxStreams,
		MaxConnections:       s.bounds.limit.Connections(maxUnaryConnections, unaryConnection, mainFiles),
		Memory:               s.bounds.pool,
		MaxHeld:              maxHeld,
		ReadTimeout:          connectWithin,
		KeepaliveInterval:    s.conf.Keepalive,
		KeepaliveTimeout:     pingAnswer,
		MaxConnectionAge:     s.conf.MaxConnectionAge,
		Grace:                s.conf.MaxConnectionAgeGrace,
		CloseTimeout:         closeWithin,
		Log:                  s.log,
		Panics:               s.panics,
	})
	if err != nil {
		return nil, err
	}
	s.metrics.Add(u.Rows("unary")...)
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
		resp, err := s.health(ctx, c)
		replyHealth(c, resp, err)
	}
	return nil
}

// health returns the health that a call asks for.
func (s *server) health(ctx context.Context, c *unary.Call) (*healthpb.HealthCheckResponse, error) {
	var req healthpb.HealthCheckRequest
	if err := proto.Unmarshal(c.Message, &req); err != nil {
		return nil, status.Error(codes.InvalidArgument, "not a HealthCheckRequest")
	}
	return s.phase.health.Check(ctx, &req)
}

// replyHealth answers a call with a response or an error.
func replyHealth(c *unary.Call, resp *healthpb.HealthCheckResponse, err error) {
	if err == nil {
		c.Reply, err = proto.MarshalOptions{}.MarshalAppend(c.Reply, resp)
	}
	if err != nil {
		st := status.Convert(err)
		c.Err = &unary.Status{Code: unary.Code(st.Code()), Message: st.Message()}
	}
}

// watchHealth answers grpc.health.v1.Health/Watch. A status changes once, when the server is drained, and the call ends
// then. While the server is not serving yet it ends at once, and the client asks again.
func (s *server) watchHealth(ctx context.Context, calls []*unary.Call) []*unary.Call {
	for _, c := range calls {
		resp, err := s.health(ctx, c)
		if status.Code(err) == codes.NotFound {
			resp, err = &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVICE_UNKNOWN}, nil
		}
		c.Open = resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING
		replyHealth(c, resp, err)
	}
	return nil
}

// grpcEndpoint serves health, reflection and the access log, and the
// rate-limit service if main, by grpc-go.
func (s *server) grpcEndpoint(name string, l net.Listener, conf *tls.Config, main bool) *endpoint {
	files := int64(servicesFiles)
	if main {
		files = mainFiles
	}
	logs := s.bounds.limit.Connections(s.conf.AccessLogs, otherConnection, logFiles)
	most := min(maxGRPCCalls, s.bounds.pool.Limit()/grpcStream)
	conns := s.bounds.limit.Connections(maxGRPCConnections, otherConnection, files)
	bound := newBoundListener(l, conns+logs, s.bounds.pool)
	calls := newGRPCStats(name, s.metrics, bound, most+int64(logs))
	l = bound
	opts := []grpc.ServerOption{
		transport.ServerCodec(),
		grpc.MaxRecvMsgSize(messages.MaxMessageSize),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectWithin),
		grpc.StreamInterceptor(s.boundStream),
		grpc.StatsHandler(calls),
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
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	opts = append(opts, grpc.Creds(boundCredentials{creds, s.handshakes, s.failures.failed(name)}))
	if main {
		opts = append(opts, transport.ReadBeforeEnd(calls.admit))
		l = transport.Listener(l)
	} else {
		opts = append(opts, grpc.InTapHandle(calls.admit))
	}
	g := grpc.NewServer(opts...)
	if main {
		transport.Register(g, s.limits.service, s.metrics.requests("grpc"))
	}
	accesslog.Register(g, s.limits.service.Leases(), accesslog.Config{
		Keys: s.conf.LeaseKeys, MaxStreams: s.conf.AccessLogs, MaxStreamsPerPeer: s.conf.AccessLogsPerPeer,
		Timeout: s.conf.BackendTimeout, Log: s.log, Count: s.metrics.logs.Count, Panics: s.panics,
	})
	healthpb.RegisterHealthServer(g, s.phase.health)
	registerReflection(g)
	serve := func(l net.Listener) error {
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("grpc server: %w", err)
		}
		return nil
	}
	return &endpoint{name: name, listener: l, serve: serve, drain: drainGRPC(g), stop: g.Stop}
}

// unknownMethod answers calls of methods that are not served here.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Error(codes.Unimplemented, "unknown method "+method)
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
func (s *server) boundStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.phase.streams, cancel)()
	var err error
	if s.panics.Do("stream", func() { err = handler(srv, boundStream{stream, ctx}) }) != nil {
		return status.Error(codes.Internal, "the handler failed")
	}
	return err
}

type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (b boundStream) Context() context.Context { return b.ctx }
