//go:build !rlsonly

package server

import (
	"context"

	"github.com/headgate-rls/headgate/internal/app/tracing"
)

// openTracing opens what sends spans.
func openTracing(ctx context.Context, s *server) (*addition, error) {
	spans, err := tracing.Open(ctx, s.log, s.version)
	if spans == nil {
		return nil, err
	}
	s.metrics.Add(spans.Rows()...)
	return &addition{tracer: spans.Tracer(), close: func() {
		if err := spans.Close(); err != nil {
			s.log.Warn("spans were not sent", "error", err)
		}
	}}, nil
}
