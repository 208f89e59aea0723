package server

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/wire/unary"
)

// grpcStats counts what a server of grpc-go answers.
type grpcStats struct {
	answers  [len(unary.CodeNames)]*metrics.Counter // by code
	accepted metrics.Counter
	open     atomic.Int64
}

func newGRPCStats(transport string, m *serverMetrics, l *boundListener) *grpcStats {
	g := new(grpcStats)
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

// TagRPC implements stats.Handler.
func (*grpcStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (*grpcStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (g *grpcStats) HandleRPC(_ context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok {
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
