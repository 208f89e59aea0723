package server

import (
	"context"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/internal/app/telemetry"
)

// grpcStats tells the metrics what a server of grpc-go answers.
type grpcStats struct{ counts *telemetry.GRPCServer }

// TagRPC implements stats.Handler.
func (grpcStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (grpcStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (g grpcStats) HandleRPC(_ context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok {
		g.counts.Answered(uint32(status.Code(end.Error)))
	}
}

// HandleConn implements stats.Handler.
func (g grpcStats) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		g.counts.Opened()
	case *stats.ConnEnd:
		g.counts.Closed()
	}
}
