package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/internal/config"
	"github.com/headgate-rls/headgate/internal/sqldb"
	"github.com/headgate-rls/headgate/internal/telemetry"
	"github.com/headgate-rls/headgate/internal/web"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/httpapi"
	"github.com/headgate-rls/headgate/policies/sqlstore"
)

// A policyService is the part of the server that follows the policies in a database.
type policyService struct {
	conf     *config.Policies
	log      *slog.Logger
	store    *sqlstore.Store
	set      *policies.Set
	follower *policies.Follower
	admin    http.Handler // behind the guard
	migrated bool
}

// OpenPolicies opens the database of policies that the settings name. It need not answer at this
// moment. The caller closes it.
func OpenPolicies(c *config.Policies, log *slog.Logger) (*sqlstore.Store, error) {
	store, err := sqlstore.Open(sqlstore.Config{URL: c.URL, Username: c.Username, Password: c.Password, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--policies: %w", err)
	}
	return store, nil
}

// readFirst is for how long the start waits for the policies.
const readFirst = 15 * time.Second

// openPolicies makes the policy service, and reads the policies if the database answers; nil if
// none is configured.
func openPolicies(ctx context.Context, conf *config.Policies, guard *web.Guard, log *slog.Logger, metrics *telemetry.Metrics) (*policyService, error) {
	if conf.URL == "" {
		return nil, nil
	}
	store, err := OpenPolicies(conf, log)
	if err != nil {
		return nil, err
	}
	set := new(policies.Set)
	p := &policyService{conf: conf, log: log, store: store, set: set, migrated: !conf.Migrate, follower: policies.NewFollower(store, set, log)}
	p.admin = guard.Wrap(httpapi.New(policies.NewEditor(store, p.follower.Hint), log))
	ctx, cancel := context.WithTimeout(ctx, readFirst)
	defer cancel()
	if err = p.migrate(ctx); err == nil {
		err = p.follower.Poll(ctx)
	}
	var known *sqldb.Error
	switch {
	case err == nil:
	case errors.As(err, &known) && known.Kind == sqldb.Failed:
		return nil, errors.Join(fmt.Errorf("--policies: %w", err), store.Close())
	default:
		log.Error("the database of policies does not answer; rules decide by their own limits until it does", "error", err)
	}
	metrics.AddPolicies(p.stats)
	return p, nil
}

func (p *policyService) stats() telemetry.PolicyStats {
	s := p.set.Snapshot()
	age, _ := p.set.Age(time.Now())
	return telemetry.PolicyStats{Loaded: p.set.Loaded(), Policies: s.Len(), Bytes: s.Bytes(), Rejected: p.set.Rejected(), Age: age}
}

// migrate brings the schema up to date, unless that has been done.
func (p *policyService) migrate(ctx context.Context) error {
	if p.migrated {
		return nil
	}
	_, err := p.store.Migrate(ctx)
	p.migrated = err == nil
	return err
}

// run follows the database until ctx ends. A database that was not there at the start is migrated
// when it comes.
func (p *policyService) run(ctx context.Context) {
	for !p.migrated && ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, migrateWithin)
		err := p.migrate(short)
		cancel()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	p.follower.Run(ctx)
}

// stale is from when readiness tells the age of the policies.
const stale = 10 * time.Second

// part reports whether policies have been read. The service is ready with old ones.
func (p *policyService) part() web.Part {
	part := web.Part{Name: "policies"}
	age, loaded := p.set.Age(time.Now())
	switch {
	case !loaded:
		part.Problem = "have not been read: the database does not answer"
	case age > stale:
		part.Problem, part.Serving = fmt.Sprintf("the database does not answer; those of %v ago are in force", age.Round(time.Second)), true
	}
	return part
}

func (p *policyService) close() {
	if err := p.store.Close(); err != nil {
		p.log.Warn("could not close the database of policies", "error", err)
	}
}
