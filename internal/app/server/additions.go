package server

import (
	"context"
	"net/http"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
)

// An addition is a part of the server beside its limits. What it does not have is nil or empty.
type addition struct {
	name, where string                  // of the setting, and its database, for the log
	admin       map[string]http.Handler // behind the guard, by what a path has after /admin/; "": the other paths
	document    []byte                  // the OpenAPI document of its admin paths
	api         http.Handler            // of /slots and /api/v1/
	page        http.Handler            // of /policies, without the guard
	policies    *policies.Set           // which take the place of limits of rules
	tap         ratelimit.Tap           // sees what the limits decide
	tracer      ratelimit.Tracer
	serves      func(*ratelimit.Service)    // gets the limits when they are open
	prepare     func(context.Context) error // what takes time at the start, behind the limits
	part        func() web.Part             // for readiness
	run         func(context.Context)       // works until ctx ends
	close       func()
}

// An opener opens an addition; nil if the settings do not ask for it. The openers of a build are in build.go.
type opener func(context.Context, *server) (*addition, error)

// openAdditions opens the additions of this build.
func (s *server) openAdditions(ctx context.Context) error {
	for _, open := range openers {
		a, err := open(ctx, s)
		if err != nil {
			return err
		}
		if a != nil {
			s.additions = append(s.additions, a)
		}
	}
	return nil
}

// complete adds what additions have for the limits.
func (s *server) complete(service *ratelimit.Config) {
	service.Policies = s.policies()
	service.Tracer = first(s, func(a *addition) ratelimit.Tracer { return a.tracer })
	for _, a := range s.additions {
		if a.tap != nil {
			service.Taps = append(service.Taps, a.tap)
		}
	}
}

// prepareAdditions does what takes time at the start.
func (s *server) prepareAdditions(ctx context.Context) error {
	for _, a := range s.additions {
		if a.prepare != nil {
			if err := a.prepare(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// closeAdditions closes them, the last one first.
func (s *server) closeAdditions() {
	for i := range s.additions {
		if a := s.additions[len(s.additions)-1-i]; a.close != nil {
			a.close()
		}
	}
}

// policies are those in force, or nil.
func (s *server) policies() *policies.Set {
	return first(s, func(a *addition) *policies.Set { return a.policies })
}

// first returns what the first addition has that has it.
func first[T comparable](s *server, get func(*addition) T) (none T) {
	for _, a := range s.additions {
		if v := get(a); v != none {
			return v
		}
	}
	return none
}
