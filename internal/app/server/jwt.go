//go:build !rlsonly

package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-rls/headgate/internal/kit/jwks"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

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
