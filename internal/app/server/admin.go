package server

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/web"
	counters "github.com/headgate-rls/headgate/ratelimit/httpapi"
)

// openGuard makes the guard in front of admin paths.
func (s *server) openGuard() (err error) {
	c := &s.conf.Admin
	s.refusals = web.NewRefusals(s.log)
	s.metrics.Add(s.refusals.Rows()...)
	g := web.GuardConfig{Token: c.Token, Named: c.Named, Networks: c.Prefixes(), ClientCertificates: c.ClientCA != "",
		Refusals: s.refusals}
	if c.JWKS != "" {
		if g.Verify, err = openVerifier(s); err != nil {
			return fmt.Errorf("--admin-jwks: %w", err)
		}
	}
	if s.guard, err = web.NewGuard(g); err != nil {
		return fmt.Errorf("--admin-token: %w", err)
	}
	return nil
}

// adminPaths has the handlers of /admin/, by the next segment of the path; "" has that of all others.
type adminPaths map[string]http.Handler

// changeDocument describes the paths about changes of rules.
//
//go:embed change.openapi.json
var changeDocument []byte

// newAdminPaths returns the handlers of all parts, each behind the guard.
func (s *server) newAdminPaths() (adminPaths, error) {
	documents := [][]byte{counters.OpenAPI(), changeDocument}
	paths := adminPaths{}
	of := s.guard.Wrap(counters.New(counters.Config{
		Service: s.limits.service, Watch: s.limits.watch, List: s.limits.store.List, Version: s.version, Log: s.log,
		Ready: web.Readiness{Draining: s.phase.draining.Load, Parts: s.parts},
		Fleet: s.limits.fleet, HashKeys: s.conf.Admin.Keys == config.HashedKeys,
	}))
	for _, path := range []string{"status", "metrics", "reset", "coverage", "reloads", "top", "explain", "rules",
		"recent"} {
		paths[path] = of
	}
	for _, a := range s.additions {
		for path, handler := range a.admin {
			paths[path] = s.guard.Wrap(handler)
		}
		if a.document != nil {
			documents = append(documents, a.document)
		}
	}
	document, err := web.Document(documents...)
	paths["openapi.json"] = s.guard.Wrap(document)
	return paths, err
}

// off has the errors of admin paths whose feature is disabled.
var off = map[string]string{
	"policies":         "policies are off: run headgate serve with --policies URL",
	"policies-history": "policies are off: run headgate serve with --policies URL",
	"candidate":        "no rules are on trial: run headgate serve with --candidate next/",
	"":                 "slots are off: run headgate serve with --slots URL",
}

// ServeHTTP hands a request on. Where that part is off, it says so.
func (a adminPaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	top, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/admin/"), "/")
	if a[top] == nil && off[top] == "" {
		top = ""
	}
	if a[top] == nil {
		web.Error(w, http.StatusNotFound, off[top])
		return
	}
	a[top].ServeHTTP(w, r)
}
