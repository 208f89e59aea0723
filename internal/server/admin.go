package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate-rls/headgate/internal/config"
	"github.com/headgate-rls/headgate/internal/web"
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
	policies, slots http.Handler
}

// ServeHTTP hands a request on. Where that part is off, it says so.
func (a adminPaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	part, off := a.slots, "slots are off: run headgate serve with --slots URL"
	if path := r.URL.Path; path == "/admin/policies" || strings.HasPrefix(path, "/admin/policies/") || path == "/admin/openapi.json" {
		part, off = a.policies, "policies are off: run headgate serve with --policies URL"
	}
	if part == nil {
		web.Error(w, http.StatusNotFound, off)
		return
	}
	part.ServeHTTP(w, r)
}
