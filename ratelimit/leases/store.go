package leases

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// lifeLimits caches limits that only say how long a lease lives.
var lifeLimits sync.Map // time.Duration to *limit.Limit

// lifeLimit returns a limit under which leases are counted, renewed and ended.
func lifeLimit(ttl time.Duration) *limit.Limit {
	if l, ok := lifeLimits.Load(ttl); ok {
		return l.(*limit.Limit)
	}
	ttl = min(max(ttl, limit.MinWindow), limit.MaxWindow).Truncate(time.Microsecond)
	l, _ := lifeLimits.LoadOrStore(ttl,
		limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: ttl}))
	return l.(*limit.Limit)
}

// inFlightAfter returns how many leases there are after an op under a
// lifeLimit. Outcome.InFlight may count remembered refusals as well.
func inFlightAfter(out *limit.Outcome) int64 { return limit.MaxInFlight - out.Remaining }

// A store does ops on leases, on the backend or in this process's memory.
type store struct {
	backend     backends.Backend
	local       backends.Backend
	serverClock bool
	now         func() limit.Instant
	timeout     time.Duration
	panics      *background.Reporter

	localUntil atomic.Int64 // Unix ns until which leases may be in local
}

// batchSize is how many requests one call to the backend has at most.
const batchSize = 256

// take asks the backend once. A panic in the backend fails all requests.
func (s *store) take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if !s.serverClock {
		at := s.now()
		for i := range reqs {
			reqs[i].At = at
		}
	}
	if err := s.panics.Do("leases", func() { s.backend.Take(ctx, reqs, out) }); err != nil {
		backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, err))
	}
}

// takeEach asks the backend once, and waits for at most the timeout.
func (s *store) takeEach(ctx context.Context, list [][]limit.Op) []limit.Verdict {
	out := make([]limit.Verdict, len(list))
	if len(list) == 0 {
		return out
	}
	reqs := make([]limit.Request, len(list))
	for i := range list {
		reqs[i].Ops = list[i]
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.take(ctx, reqs, out)
	return out
}

// expectLocal notes that a lease was granted in this process's memory.
func (s *store) expectLocal(ttl time.Duration) {
	until := time.Now().Add(ttl).UnixNano()
	for {
		old := s.localUntil.Load()
		if old >= until || s.localUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

// takeLocal does ops in this process's memory, if there may be leases. They may
// be about leases that are not there.
func (s *store) takeLocal(ops []limit.Op) {
	if until := s.localUntil.Load(); until == 0 || time.Now().UnixNano() >= until {
		return
	}
	out := make([]limit.Verdict, 1)
	s.local.Take(context.Background(), []limit.Request{{Ops: ops, At: s.now()}}, out)
}
