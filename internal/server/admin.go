package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate-rls/headgate/internal/config"
	"github.com/headgate-rls/headgate/internal/web"
	policies "github.com/headgate-rls/headgate/policies/httpapi"
	counters "github.com/headgate-rls/headgate/ratelimit/httpapi"
)

// newGuard makes the guard in front of admin paths.
func newGuard(c *config.Admin) (*web.Guard, error) {
	guard, err := web.NewGuard(web.GuardConfig{Token: c.Token, ClientCertificates: c.ClientCA != ""})
	if err != nil {
		return nil, fmt.Errorf("--admin-token: %w", err)
	}
	return guard, nil
}

// adminPaths are the handlers of what begins with /admin/; nil: that part of the service is off.
type adminPaths struct {
	counters, policies, slots http.Handler
	document                  http.Handler // OpenAPI
}

// newAdminPaths puts the handlers of the parts behind the guard.
func (s *server) newAdminPaths(guard *web.Guard) (paths adminPaths, err error) {
	documents := [][]byte{counters.OpenAPI()}
	paths.counters = guard.Wrap(counters.New(counters.Config{
		Service: s.limits.service, List: s.limits.store.List, Version: s.version, Log: s.log,
		Ready: web.Readiness{Draining: s.phase.draining.Load, Parts: s.parts},
	}))
	if s.policies != nil {
		paths.policies = s.policies.admin
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
	case "policies":
		part, off = a.policies, "policies are off: run headgate serve with --policies URL"
	case "status", "metrics", "reset":
		part = a.counters
	case "openapi.json":
		part = a.document
	}
	if part == nil {
		web.Error(w, http.StatusNotFound, off)
		return
	}
	part.ServeHTTP(w, r)
}
