package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/fleet"
	"github.com/headgate-rls/headgate/ratelimit/insight"
)

// timeout bounds a request.
const timeout = 10 * time.Second

// Config is what the handlers need. All fields must be set.
type Config struct {
	Service *ratelimit.Service
	Watch   *insight.Watch // of the service
	// List lists the keys of the store, as backends.Lister says.
	List func(ctx context.Context, after string, n int) (keys []limit.Key, next string, err error)
	// Ready says how the parts of the service are.
	Ready   web.Readiness
	Version string // of the program
	Log     *slog.Logger
	// Fleet is the replicas.
	Fleet *fleet.Fleet
	// HashKeys has keys in answers, and in them those of policies, be hashes.
	HashKeys bool
}

// Handlers are the HTTP handlers of counters. They answer requests whose paths begin with /admin/. A guard must stand
// in front of them.
type Handlers struct {
	http.Handler
	Config
	listing chan struct{} // has an element while keys are listed
	peeks   peeker
}

// yield is web.Yield, for a request that goes on to wait for the store, unless that computes in this process.
func (h *Handlers) yield(ctx context.Context) (resume func()) {
	return web.YieldIf(ctx, !h.Service.Local())
}

// shown is a key as answers have it.
func (h *Handlers) shown(name string) string {
	if h.HashKeys && name != "" {
		return descriptors.HashedName(name)
	}
	return name
}
