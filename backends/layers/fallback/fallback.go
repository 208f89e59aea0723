package fallback

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend decides while the primary is away, and settles with it afterwards.
type Backend struct {
	backends.Backend // here; Close does nothing to the primary

	primary backends.Backend
	cfg     Config
	now     func() limit.Instant
	signal  chan struct{}
	turn    chan struct{} // held by the one reconciliation under way

	// mu is shared by Takes, and held alone for what must not meet one: to
	// look at what is owed and to strike it off.
	mu     sync.RWMutex
	seed   maphash.Seed
	debts  []debts
	shares shares

	overflow, units, short, refused atomic.Uint64
}

var _ backends.Backend = (*Backend)(nil)

// debtShards is how many locks the debts are spread over.
const debtShards = 16

// New returns a backend that decides on inner, which it closes with
// itself, and charges primary when its caller asks for it. Inner must be a backend
// without I/O that nobody else uses; now is the clock of its instants.
func New(inner, primary backends.Backend, cfg Config, now func() limit.Instant) *Backend {
	cfg.setDefaults()
	l := &Backend{
		Backend: inner, primary: primary, cfg: cfg, now: now,
		signal: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		seed: maphash.MakeSeed(), debts: make([]debts, debtShards),
		shares: shares{replicas: int64(cfg.Replicas), max: max(cfg.MaxLimits, 1), of: map[*limit.Limit]*limit.Limit{}},
	}
	for i := range l.debts {
		l.debts[i] = debts{max: max((cfg.MaxKeys+debtShards-1)/debtShards, 1), byKey: map[limit.Key]*debt{}}
	}
	return l
}

// Take decides reqs by this replica's share of their limits, and remembers
// what it admits. Of requests in flight it knows those that it granted: to end
// or to renew another finds nothing (Outcome.Held is false), and is the
// primary's to do.
func (l *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.cfg.Replicas <= 1 {
		l.Backend.Take(ctx, reqs, out)
	} else {
		w := works.Get().(*work)
		l.Backend.Take(ctx, w.derive(&l.shares, reqs), out)
		w.free()
	}
	for i := range reqs {
		if out[i].Err == nil {
			l.note(&reqs[i], &out[i])
		}
	}
}

// note remembers the ops of req that v says are recorded. A lease is no debt:
// it ends here, where it was granted.
func (l *Backend) note(req *limit.Request, v *limit.Verdict) {
	if grantedBefore(req, v) {
		return // and nothing is recorded again
	}
	for i := range req.Ops {
		op, o := &req.Ops[i], &v.Outcomes[i]
		units := op.Cost
		switch {
		case o.Taken > 0 || op.AsOf != 0:
			units = o.Taken
		case !v.Charged(req.Ops, i) || inFlight(op):
			units = 0
		}
		if units != 0 && !l.debtsOf(&op.Key).note(op, units, v.At, v.At.Add(o.Reset)) {
			l.overflow.Add(1)
		}
	}
}

func inFlight(op *limit.Op) bool { return op.Limit.Is(limit.Leased) }

// grantedBefore reports whether v is the answer to a repeated request: the lease
// of one of its acquires was there, and not from an earlier op of the request.
func grantedBefore(req *limit.Request, v *limit.Verdict) bool {
	for i := range req.Ops {
		op := &req.Ops[i]
		if !v.Outcomes[i].Held || op.Cost <= 0 || !inFlight(op) {
			continue
		}
		earlier := slices.ContainsFunc(req.Ops[:i], func(o limit.Op) bool {
			return o.Cost > 0 && o.Key == op.Key && o.Holder == op.Holder
		})
		if !earlier {
			return true
		}
	}
	return false
}

func (l *Backend) debtsOf(k *limit.Key) *debts {
	h := maphash.String(l.seed, k.Group)*31 + maphash.String(l.seed, k.Limit)
	return &l.debts[h%debtShards]
}

// Forget drops the state under keys here, and what is owed for it.
func (l *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Backend.Forget(ctx, keys); err != nil {
		return err
	}
	for i := range keys {
		l.debtsOf(&keys[i]).drop(&keys[i])
	}
	return nil
}

// Pending returns how many keys are remembered to be charged.
func (l *Backend) Pending() int {
	due, _ := l.owed()
	return due
}

// owed returns how many keys are to be charged now, and how many when the primary may have room for them.
func (l *Backend) owed() (due, waiting int) {
	now := l.now()
	for i := range l.debts {
		d, w := l.debts[i].count(now)
		due, waiting = due+d, waiting+w
	}
	return due, waiting
}
