//go:build !rlsonly

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies/httpapi"
	"github.com/headgate-rls/headgate/policies/sqlstore"
	"github.com/headgate-rls/headgate/policies/table"
)

// A policyService is the part of the server that follows the policies in a database.
type policyService struct{ *sqlstore.Source }

// OpenPolicies opens the database of policies that the settings name. It need not answer at this
// moment. The caller closes it.
func OpenPolicies(c *config.Policies, is Presence, log *slog.Logger) (*sqlstore.Store, error) {
	store, err := sqlstore.Open(sqlstore.Config{Existing: is == Existing, URL: c.URL, Username: c.Username,
		Password: c.Password, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--policies: %w", err)
	}
	return store, nil
}

// readFirst is for how long the start waits for the policies.
const readFirst = 15 * time.Second

// openPolicies makes the policy service, and reads the policies if the database answers.
func openPolicies(ctx context.Context, s *server) (*addition, error) {
	conf, log := &s.conf.Policies, s.log
	if conf.URL == "" {
		return nil, nil
	}
	caps, err := stack.Caps(s.conf.Backend)
	if err != nil {
		return nil, fmt.Errorf("--backend: %w", err)
	}
	store, err := OpenPolicies(conf, Presence(!conf.Migrate), log)
	if err != nil {
		return nil, err
	}
	p := &policyService{sqlstore.NewSource(store, conf.Migrate, log)}
	editor := table.NewEditor(store, p.Hint)
	editor.Keeps, p.Set.Keeps = caps.Check, caps.Check
	handlers := httpapi.New(editor, log)
	ctx, cancel := context.WithTimeout(ctx, readFirst)
	defer cancel()
	if err := p.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("--policies: %w", err), store.Close())
	}
	s.metrics.Add(p.Set.Rows()...)
	return &addition{name: "policies", where: store.Address(), policies: p.Set, part: p.part, run: p.Run,
		admin:    map[string]http.Handler{"policies": handlers, "policies-history": handlers},
		document: httpapi.OpenAPI(), page: httpapi.Page(),
		close: func() {
			if err := p.Close(); err != nil {
				log.Warn("could not close the database of policies", "error", err)
			}
		},
		serves: func(l *limits) {
			handlers.Used, handlers.WhyNot = l.service.UsesPolicy, l.service.WhyNoPolicy
			p.Set.OnChange = l.watch.PoliciesChanged
		}}, nil
}

// stale is from when readiness tells the age of the policies.
const stale = 10 * time.Second

// part reports whether policies have been read. The service is ready with old ones.
func (p *policyService) part() web.Part {
	part := web.Part{Name: "policies"}
	age, loaded := p.Set.Age(time.Now())
	if loaded {
		part.Detail = fmt.Sprintf("%d in force, read %v ago", p.Set.Snapshot().Len(), age.Round(time.Second/10))
		if p.ReadOnly() {
			part.Detail += "; none can be changed: the database is read-only"
		}
	}
	switch {
	case !loaded:
		part.Problem = "have not been read: the database does not answer"
	case age > stale:
		part.Problem, part.Serving = fmt.Sprintf("the database does not answer; those of %v ago are in force",
			age.Round(time.Second)), true
	case p.Set.Snapshot().Unusable() > 0:
		part.Problem, part.Serving = fmt.Sprintf("%d cannot be kept by the store of the counters; the rules' own limits hold",
			p.Set.Snapshot().Unusable()), true
	}
	return part
}
