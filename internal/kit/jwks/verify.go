package jwks

import (
	"context"
	"errors"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// maxToken bounds tokens, in bytes.
const maxToken = 8 << 10

// Why tokens are refused. If the signature is wrong, no error says more about the token.
var (
	errForm      = errors.New("it is no JWT with a signature by RS256, ES256 or EdDSA")
	errKey       = errors.New("its key (kid) is not known")
	errSignature = errors.New("its signature is wrong, or its claims are no claims")
	errExpired   = errors.New("it has expired")
	errNoExpiry  = errors.New("it has no expiry (exp)")
	errEarly     = errors.New("it is not valid yet (nbf, iat)")
	errIssuer    = errors.New("its issuer (iss) is another one")
	errAudience  = errors.New("its audience (aud) is another one")
	errSubject   = errors.New("it has no subject (sub)")
)

// refused are the words for errors of claims.
var refused = []struct{ is, why error }{
	{jwt.ErrExpired, errExpired}, {jwt.ErrNotValidYet, errEarly}, {jwt.ErrIssuedInTheFuture, errEarly},
	{jwt.ErrInvalidIssuer, errIssuer}, {jwt.ErrInvalidAudience, errAudience},
}

// Verify returns the subject of a token, or why it is refused. The error is [ErrUnavailable] if
// there are no keys.
func (v *Verifier) Verify(ctx context.Context, token string) (subject string, err error) {
	if len(token) > maxToken {
		return "", errForm
	}
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(t.Headers) != 1 {
		return "", errForm
	}
	key := v.find(t.Headers[0])
	if key == nil {
		// A caller that leaves must not keep others from new keys.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*readTime)
		defer cancel()
		resume := background.Yield(ctx)
		_ = v.refresh(ctx, retryIn) // it is logged
		resume()
		if v.keys.Load() == nil {
			return "", ErrUnavailable
		}
		if key = v.find(t.Headers[0]); key == nil {
			return "", errKey
		}
	}
	var claims jwt.Claims
	if t.Claims(key.Key, &claims) != nil {
		return "", errSignature
	}
	return v.check(&claims)
}

// find returns the key that a header names, which must be one for its algorithm. Without a name it
// is the only key.
func (v *Verifier) find(h jose.Header) *jose.JSONWebKey {
	keys := v.keys.Load()
	if keys == nil {
		return nil
	}
	for i := range *keys {
		key := &(*keys)[i]
		if string(verifies(key)) == h.Algorithm && (h.KeyID == key.KeyID || h.KeyID == "" && len(*keys) == 1) {
			return key
		}
	}
	return nil
}

// check returns the subject of claims that are valid now.
func (v *Verifier) check(c *jwt.Claims) (subject string, err error) {
	err = c.ValidateWithLeeway(jwt.Expected{Issuer: v.conf.Issuer, AnyAudience: jwt.Audience{v.conf.Audience},
		Time: v.conf.Now()}, v.conf.Leeway)
	for _, r := range refused {
		if errors.Is(err, r.is) {
			return "", r.why
		}
	}
	switch {
	case err != nil:
		return "", errForm
	case c.Expiry == nil:
		return "", errNoExpiry
	case c.Subject == "":
		return "", errSubject
	}
	return c.Subject, nil
}
