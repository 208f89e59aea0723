package server

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Bounds of a listener that grpc-go serves, where there is memory for as many. Access logs,
// of which each is a call on a connection of its own, come on top.
const (
	maxGRPCConnections = 4096
	maxGRPCCalls       = 4096 // in flight, of all connections together
)

// A callBound bounds the calls in flight on all connections of a server. Below the
// bound a connection may have as many as it wants, above it no more than its share, so
// that calls which never end do not shut out others. All connections together have at
// most twice as many calls as the bound.
type callBound struct {
	stats.Handler // also sees the calls that are refused
	most          int64

	calls, conns atomic.Int64 // open
}

// connCalls is the context's key for the count of a connection.
type connCalls struct{}

// TagConn implements stats.Handler.
func (b *callBound) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(b.Handler.TagConn(ctx, info), connCalls{}, new(atomic.Int64))
}

// HandleConn implements stats.Handler.
func (b *callBound) HandleConn(ctx context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		b.conns.Add(1)
	case *stats.ConnEnd:
		b.conns.Add(-1)
	}
	b.Handler.HandleConn(ctx, s)
}

var errTooManyCalls = status.Error(codes.ResourceExhausted, "too many calls are in flight")

// admit is a tap.ServerInHandle: grpc-go calls it before it makes anything of a call.
func (b *callBound) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	own, ok := ctx.Value(connCalls{}).(*atomic.Int64)
	if !ok {
		own = new(atomic.Int64)
	}
	share := max(1, b.most/max(b.conns.Load(), 1))
	if n := own.Add(1); b.calls.Add(1) > b.most && n > share {
		own.Add(-1)
		b.calls.Add(-1)
		b.HandleRPC(ctx, &stats.End{Error: errTooManyCalls})
		return ctx, errTooManyCalls
	}
	context.AfterFunc(ctx, func() {
		own.Add(-1)
		b.calls.Add(-1)
	})
	return ctx, nil
}
