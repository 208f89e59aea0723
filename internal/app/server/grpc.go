package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/internal/wire/accesslog"
	"github.com/headgate-rls/headgate/internal/wire/handshake"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/ratelimit"
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

// A grpcFront makes the gRPC endpoints.
type grpcFront struct {
	conf    *config.Config
	log     *slog.Logger
	metrics *serverMetrics
	panics  *background.Reporter
	phase   *phase
	service *ratelimit.Service
	bounds  *bounds

	alone func() bool // see unary.Config

	handshakes *handshake.Bounds // of all gRPC listeners
	failures   failures
	certs      *certWatch
}

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

// endpoints opens the gRPC listeners: the service itself, by the transport
// that is configured, and where that is unary what it does not serve.
func (f *grpcFront) endpoints(ctx context.Context) ([]*endpoint, error) {
	conf, err := f.tlsConfig()
	if err != nil {
		return nil, err
	}
	l, err := web.Listen(ctx, "grpc", f.conf.GRPC, socketMode(f.conf))
	if err != nil {
		return nil, err
	}
	if f.conf.Transport == "grpc" {
		return []*endpoint{f.grpcEndpoint("grpc", l, conf, true)}, nil
	}
	main, err := f.unaryEndpoint(l, conf)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	if f.conf.Services == "" {
		return []*endpoint{main}, nil
	}
	rest, err := web.Listen(ctx, "services", f.conf.Services, socketMode(f.conf))
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return []*endpoint{main, f.grpcEndpoint("services", rest, conf, false)}, nil
}

func (f *grpcFront) tlsConfig() (*tls.Config, error) {
	if f.conf.TLSCert == "" {
		return nil, nil
	}
	clients, err := certs.Parse(f.conf.ClientSANs)
	if err != nil {
		return nil, err // was checked at start
	}
	files := &certFiles{flags: "grpc", cert: f.conf.TLSCert, key: f.conf.TLSKey, clientCA: f.conf.ClientCA,
		protocols: []string{"h2"}, ifGiven: f.conf.ClientAuth == config.IfGiven, clients: clients, log: f.log}
	f.certs.files = append(f.certs.files, files)
	return serverTLS(files)
}

// unaryEndpoint serves the rate-limit service and health checks by package
// unary.
func (f *grpcFront) unaryEndpoint(l net.Listener, conf *tls.Config) (*endpoint, error) {
	hint := ""
	if f.conf.Services != "" {
		hint = "other services are served on " + f.conf.Services
	}
	handlers := transport.Handlers(f.service, f.metrics.requests("unary"))
	handlers[healthpb.Health_Check_FullMethodName] = unary.Handler{Inline: f.checkHealth}
	handlers[healthpb.Health_Watch_FullMethodName] = unary.Handler{Inline: f.watchHealth}
	u, err := unary.New(unary.Config{
		Handlers:             handlers,
		UnknownHint:          hint,
		Alone:                f.alone,
		TLS:                  conf,
		Handshakes:           f.handshakes,
		Failures:             f.failures.Failures,
		Identify:             certs.Identity,
		MaxMessageSize:       messages.MaxMessageSize,
		MaxHeaderListSize:    maxHeaders,
		MaxConcurrentStreams: maxStreams,
		MaxConnections:       f.bounds.limit.Connections(maxUnaryConnections, unaryConnection),
		Memory:               f.bounds.pool,
		MaxHeld:              maxHeld,
		ReadTimeout:          connectWithin,
		KeepaliveInterval:    f.conf.Keepalive,
		KeepaliveTimeout:     pingAnswer,
		MaxConnectionAge:     f.conf.MaxConnectionAge,
		Grace:                f.conf.MaxConnectionAgeGrace,
		CloseTimeout:         closeWithin,
		Log:                  f.log,
		Panics:               f.panics,
	})
	if err != nil {
		return nil, err
	}
	f.metrics.Add(u.Rows("unary")...)
	serve := func(l net.Listener) error {
		if err := u.Serve(l); !errors.Is(err, unary.ErrClosed) {
			return err
		}
		return nil
	}
	return &endpoint{name: "grpc", listener: l, serve: serve, drain: u.Shutdown, stop: func() { _ = u.Close() }}, nil
}

// checkHealth answers grpc.health.v1.Health/Check.
func (f *grpcFront) checkHealth(ctx context.Context, calls []*unary.Call) []*unary.Call {
	for _, c := range calls {
		resp, err := f.health(ctx, c)
		replyHealth(c, resp, err)
	}
	return nil
}

// health returns the health that a call asks for.
func (f *grpcFront) health(ctx context.Context, c *unary.Call) (*healthpb.HealthCheckResponse, error) {
	var req healthpb.HealthCheckRequest
	if err := proto.Unmarshal(c.Message, &req); err != nil {
		return nil, status.Error(codes.InvalidArgument, "not a HealthCheckRequest")
	}
	return f.phase.health.Check(ctx, &req)
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
func (f *grpcFront) watchHealth(ctx context.Context, calls []*unary.Call) []*unary.Call {
	for _, c := range calls {
		resp, err := f.health(ctx, c)
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
func (f *grpcFront) grpcEndpoint(name string, l net.Listener, conf *tls.Config, main bool) *endpoint {
	logs := f.bounds.limit.Connections(f.conf.AccessLogs, otherConnection)
	most := min(maxGRPCCalls, f.bounds.pool.Limit()/grpcStream)
	bound := newBoundListener(l, f.bounds.limit.Connections(maxGRPCConnections, otherConnection)+logs, f.bounds.pool)
	calls := newGRPCStats(name, f.metrics, bound, most+int64(logs))
	l = bound
	opts := []grpc.ServerOption{
		transport.ServerCodec(),
		grpc.MaxRecvMsgSize(messages.MaxMessageSize),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectWithin),
		grpc.StreamInterceptor(f.boundStream),
		grpc.StatsHandler(calls),
		grpc.UnknownServiceHandler(unknownMethod), // else its answers would not be counted
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      f.conf.MaxConnectionAge,
			MaxConnectionAgeGrace: f.conf.MaxConnectionAgeGrace,
			// A proxy whose host is gone is noticed within the grace time.
			Time:    min(f.conf.Keepalive, max(f.conf.OwnerGrace/3, time.Second)),
			Timeout: min(pingAnswer, max(f.conf.OwnerGrace/3, time.Second)),
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	opts = append(opts, grpc.Creds(boundCredentials{creds, f.handshakes, f.failures.failed(name)}))
	if main {
		opts = append(opts, transport.ReadBeforeEnd(calls.admit))
		l = transport.Listener(l)
	} else {
		opts = append(opts, grpc.InTapHandle(calls.admit))
	}
	g := grpc.NewServer(opts...)
	if main {
		transport.Register(g, f.service, f.metrics.requests("grpc"))
	}
	accesslog.Register(g, f.service.Leases(), accesslog.Config{
		Keys: f.conf.LeaseKeys, MaxStreams: f.conf.AccessLogs, MaxStreamsPerPeer: f.conf.AccessLogsPerPeer,
		Timeout: f.conf.BackendTimeout, Log: f.log, Count: f.metrics.logs.Count, Panics: f.panics,
	})
	healthpb.RegisterHealthServer(g, f.phase.health)
	registerReflection(g)
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
func (f *grpcFront) boundStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(f.phase.streams, cancel)()
	var err error
	if f.panics.Do("stream", func() { err = handler(srv, boundStream{stream, ctx}) }) != nil {
		return status.Error(codes.Internal, "the handler failed")
	}
	return err
}

type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (b boundStream) Context() context.Context { return b.ctx }
