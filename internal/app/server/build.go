//go:build !rlsonly

package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-rls/headgate/internal/app/tracing"
	"github.com/headgate-rls/headgate/internal/kit/jwks"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// The stores of counters that a server has, and commands that need one.
import (
	_ "github.com/headgate-rls/headgate/backends/dynamodb"
	_ "github.com/headgate-rls/headgate/backends/redis"
	_ "github.com/headgate-rls/headgate/backends/sqlstore"
)

// httpProtocols are the protocols of net/http in this build, by their names in ALPN.
var httpProtocols = []string{"h2", "http/1.1"}

// openers are the additions, in the order in which they are opened: candidates need policies.
var openers = []opener{openTracing, openSlots, openPolicies, openCapture, openTrial}

// openVerifier returns a function that verifies JWTs for the guard. An addition reads their keys in the background.
func openVerifier(s *server) (func(ctx context.Context, token string) (subject string, err error), error) {
	c := &s.conf.Admin
	verifier, err := jwks.New(jwks.Config{Source: c.JWKS, Issuer: c.Issuer, Audience: c.Audience, Leeway: c.Leeway,
		Log: s.log})
	if err != nil {
		return nil, err
	}
	s.additions = append(s.additions, &addition{run: verifier.Run})
	return func(ctx context.Context, token string) (string, error) {
		subject, err := verifier.Verify(ctx, token)
		if errors.Is(err, jwks.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", web.ErrUnverified, err)
		}
		return subject, err
	}, nil
}

// openTracing opens what sends spans.
func openTracing(ctx context.Context, s *server) (*addition, error) {
	spans, err := tracing.Open(ctx, s.log, s.version)
	if spans == nil {
		return nil, err
	}
	s.metrics.Add(spans.Rows()...)
	return &addition{tracer: spans.Tracer, close: func() {
		if err := spans.Close(); err != nil {
			s.log.Warn("spans were not sent", "error", err)
		}
	}}, nil
}
