package server

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/jwks"
	"github.com/headgate-rls/headgate/internal/kit/web"
	policies "github.com/headgate-rls/headgate/policies/httpapi"
	counters "github.com/headgate-rls/headgate/ratelimit/httpapi"
)

// newGuard makes the guard in front of admin paths, and what verifies JWTs: nil if nothing does.
func newGuard(c *config.Admin, log *slog.Logger, refusals *web.Refusals) (*web.Guard, *jwks.Verifier, error) {
	g := web.GuardConfig{Token: c.Token, Named: c.Named, Networks: c.Prefixes(), ClientCertificates: c.ClientCA != "",
		Refusals: refusals}
	var verifier *jwks.Verifier
	if c.JWKS != "" {
		var err error
		verifier, err = jwks.New(jwks.Config{Source: c.JWKS, Issuer: c.Issuer, Audience: c.Audience,
			Leeway: c.Leeway, Log: log})
		if err != nil {
			return nil, nil, fmt.Errorf("--admin-jwks: %w", err)
		}
		g.Verify = func(ctx context.Context, token string) (string, error) {
			subject, err := verifier.Verify(ctx, token)
			if errors.Is(err, jwks.ErrUnavailable) {
				err = fmt.Errorf("%w: %w", web.ErrUnverified, err)
			}
			return subject, err
		}
	}
	guard, err := web.NewGuard(g)
	if err != nil {
		return nil, nil, fmt.Errorf("--admin-token: %w", err)
	}
	return guard, verifier, nil
}

// adminPaths are the handlers of what begins with /admin/; nil: that part of the service is off.
type adminPaths struct {
	counters, policies, slots http.Handler
	capture, candidate        http.Handler
	document                  http.Handler // OpenAPI
	page                      http.Handler // of /policies, without the guard
}

// changeDocument describes the paths about changes of rules.
//
//go:embed change.openapi.json
var changeDocument []byte

// newAdminPaths puts the handlers of the parts behind the guard.
func (s *server) newAdminPaths(guard *web.Guard) (paths adminPaths, err error) {
	documents := [][]byte{counters.OpenAPI(), changeDocument}
	paths.counters = guard.Wrap(counters.New(counters.Config{
		Service: s.limits.service, Watch: s.limits.watch, List: s.limits.store.List, Version: s.version, Log: s.log,
		Ready: web.Readiness{Draining: s.phase.draining.Load, Parts: s.parts},
		Fleet: s.limits.fleet, HashKeys: s.conf.Admin.Keys == config.HashedKeys,
	}))
	paths.capture = guard.Wrap(s.capture)
	if s.trial != nil {
		paths.candidate = guard.Wrap(s.trial)
	}
	if s.policies != nil {
		paths.policies, paths.page = s.policies.admin, policies.Page()
		documents = append(documents, policies.OpenAPI())
	}
	if s.slots != nil {
		paths.slots = s.slots.admin
	}
	document, err := web.Document(documents...)
	paths.document = guard.Wrap(document)
	return paths, err
}

// ServeHTTP hands a request on. Where that part is off, it says so.
func (a adminPaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	part, off := a.slots, "slots are off: run headgate serve with --slots URL"
	switch top, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/admin/"), "/"); top {
	case "policies", "policies-history":
		part, off = a.policies, "policies are off: run headgate serve with --policies URL"
	case "status", "metrics", "reset", "coverage", "reloads", "top", "explain", "rules", "recent":
		part = a.counters
	case "candidate":
		part, off = a.candidate, "no rules are on trial: run headgate serve with --candidate next/"
	case "capture":
		part = a.capture
	case "openapi.json":
		part = a.document
	}
	if part == nil {
		web.Error(w, http.StatusNotFound, off)
		return
	}
	part.ServeHTTP(w, r)
}
