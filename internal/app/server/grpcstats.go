package server

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/wire/unary"
)

// Bounds of a listener that grpc-go serves, where there is memory for as many. Access logs,
// of which each is a call on a connection of its own, come on top.
const (
	maxGRPCConnections = 4096
	maxGRPCCalls       = 4096 // in flight, of all connections together
)

// grpcStats count what a server of grpc-go answers, note when its connections make calls, and bound the calls in flight
// on all of them. Below the bound a connection may have as many as it wants, above it no more than its share, so
// that calls which never end do not shut out others. All connections together have at
// most twice as many calls as the bound.
type grpcStats struct {
	answers  [len(unary.CodeNames)]*metrics.Counter // by code
	accepted metrics.Counter

	most        int64        // calls
	calls, open atomic.Int64 // calls in flight, and connections
}

func newGRPCStats(transport string, m *serverMetrics, l *boundListener, most int64) *grpcStats {
	g := &grpcStats{most: most}
	for code := range g.answers {
		g.answers[code] = m.answers.Of(transport, unary.CodeNames[code])
	}
	m.Add(one(unary.Accepted, transport, g.accepted.Value), one(unary.Connections, transport, g.open.Load),
		one(unary.Refused, transport, l.refused.Value), one(unary.Displaced, transport, l.displaced.Value))
	return g
}

// one returns a row with the value of one transport.
func one(row metrics.Row, transport string, value func() int64) metrics.Row {
	row.Each = func(emit metrics.Emit) { emit([]string{transport}, float64(value()), nil) }
	return row
}

// connKey is the context's key for the connection of a call.
type connKey struct{}

// A connCalls is the calls of a connection.
type connCalls struct {
	of   *boundConn // nil: it is not known
	open atomic.Int64
}

// TagRPC implements stats.Handler.
func (*grpcStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (*grpcStats) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connKey{}, &connCalls{of: boundConnOf(info.RemoteAddr)})
}

// HandleRPC implements stats.Handler.
func (g *grpcStats) HandleRPC(ctx context.Context, s stats.RPCStats) {
	end, ended := s.(*stats.End)
	if _, asked := s.(*stats.InPayload); !asked && !ended {
		return
	}
	if own, _ := ctx.Value(connKey{}).(*connCalls); own != nil && own.of != nil {
		own.of.used.Store(time.Now().UnixNano())
	}
	if ended {
		g.answers[min(int(status.Code(end.Error)), len(g.answers)-1)].Inc()
	}
}

// HandleConn implements stats.Handler.
func (g *grpcStats) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		g.accepted.Inc()
		g.open.Add(1)
	case *stats.ConnEnd:
		g.open.Add(-1)
	}
}

var errTooManyCalls = status.Error(codes.ResourceExhausted, "too many calls are in flight")

// admit is a tap.ServerInHandle: grpc-go calls it before it makes anything of a call.
func (g *grpcStats) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	own, ok := ctx.Value(connKey{}).(*connCalls)
	if !ok {
		own = new(connCalls)
	}
	share := max(1, g.most/max(g.open.Load(), 1))
	if n := own.open.Add(1); g.calls.Add(1) > g.most && n > share {
		own.open.Add(-1)
		g.calls.Add(-1)
		g.HandleRPC(ctx, &stats.End{Error: errTooManyCalls})
		return ctx, errTooManyCalls
	}
	context.AfterFunc(ctx, func() {
		own.open.Add(-1)
		g.calls.Add(-1)
	})
	return ctx, nil
}
