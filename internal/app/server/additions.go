package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
)

// An addition is an optional part of the server, such as slots. Fields that it does not need are zero.
type addition struct {
	name, where string                  // its setting and its database, for the log
	admin       map[string]http.Handler // by the segment after /admin/, "" for all others; the server adds the guard
	document    []byte                  // the OpenAPI document of its admin paths
	api         http.Handler            // of /slots and /api/v1/
	page        http.Handler            // of /policies, without the guard
	policies    *policies.Set           // that replace limits of rules
	tap         ratelimit.Tap           // reads decisions
	tracer      ratelimit.Tracer
	serves      func(*limits)               // is called when they are open
	prepare     func(context.Context) error // is called at the start, after the limits are prepared
	part        func() web.Part             // reports readiness
	run         func(context.Context)       // runs until ctx ends
	close       func()
}

// An opener opens an addition, or returns nil if the settings do not enable it. build.go has the openers of a build.
type opener func(context.Context, *server) (*addition, error)

// closeAdditions closes them, the last one first.
func (s *server) closeAdditions() {
	for _, a := range slices.Backward(s.additions) {
		if a.close != nil {
			a.close()
		}
	}
}

// policies returns the policies of the addition that has some, or nil.
func (s *server) policies() *policies.Set {
	return first(s, func(a *addition) *policies.Set { return a.policies })
}

// first returns the first value of additions that is not zero.
func first[T comparable](s *server, get func(*addition) T) (none T) {
	for _, a := range s.additions {
		if v := get(a); v != none {
			return v
		}
	}
	return none
}
