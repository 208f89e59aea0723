package failover

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Local decides while the primary is away, and settles with it afterwards.
type Local struct {
	inner   backends.Backend
	primary backends.Backend
	cfg     LocalConfig
	now     func() limit.Instant
	signal  chan struct{}
	turn    chan struct{} // held by the one reconciliation under way

	// mu is shared by Takes, and held alone for what must not meet one: to
	// look at what is owed and to strike it off.
	mu     sync.RWMutex
	seed   maphash.Seed
	debts  []debts
	shares shares

	overflow, charged, units, short, ended, refused atomic.Uint64
}

var _ backends.Backend = (*Local)(nil)

// debtShards is how many locks the debts are spread over.
const debtShards = 16

// NewLocal returns a backend that decides on inner, which it closes with
// itself, and charges primary when its caller asks for it. Inner must be a backend
// without I/O that nobody else uses; now is the clock of its instants.
func NewLocal(inner, primary backends.Backend, cfg LocalConfig, now func() limit.Instant) *Local {
	cfg.setDefaults()
	l := &Local{
		inner: inner, primary: primary, cfg: cfg, now: now,
		signal: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		seed: maphash.MakeSeed(), debts: make([]debts, debtShards),
	}
	for i := range l.debts {
		l.debts[i].init((cfg.MaxKeys + debtShards - 1) / debtShards)
	}
	l.shares.init(cfg.Replicas, cfg.MaxLimits)
	return l
}

// Take decides reqs by this replica's share of their limits, and remembers
// what it admits. Of requests in flight it knows those that it granted: to end
// or to renew another finds nothing (Outcome.Held is false), and is the
// primary's to do.
func (l *Local) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.cfg.Replicas <= 1 {
		l.inner.Take(ctx, reqs, out)
	} else {
		w := works.Get().(*work)
		l.inner.Take(ctx, w.derive(&l.shares, reqs), out)
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
func (l *Local) note(req *limit.Request, v *limit.Verdict) {
	if grantedBefore(req, v) {
		return // and nothing is recorded again
	}
	for i := range req.Ops {
		op, o := &req.Ops[i], &v.Outcomes[i]
		if op.Cost == 0 || !o.Admitted || !v.Admitted && !op.Each || inFlight(op) {
			continue
		}
		if !l.debtsOf(&op.Key).note(op, v.At, v.At.Add(o.Reset)) {
			l.overflow.Add(1)
		}
	}
}

func inFlight(op *limit.Op) bool { return op.Limit.Algorithm() == limit.Concurrency }

// grantedBefore says whether v is the answer to a repeated request: the lease
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

func (l *Local) debtsOf(k *limit.Key) *debts {
	h := maphash.String(l.seed, k.Group)*31 + maphash.String(l.seed, k.Limit)
	return &l.debts[h%debtShards]
}

// A debt says that units under key were admitted here. How many of them still
// count is in the inner backend's state.
type debt struct {
	key   limit.Key
	of    *limit.Limit  // the whole one, as it was last asked by
	ends  limit.Instant // nothing counts any more
	since int64         // units admitted since they were last counted
}

// debts is a shard of them.
type debts struct {
	mu    sync.Mutex
	max   int
	byKey map[limit.Key]*debt
	swept limit.Instant
}

func (s *debts) init(most int) { s.max, s.byKey = max(most, 1), map[limit.Key]*debt{} }

// note remembers that op was recorded at now and counts until ends. It says
// whether there was room to.
func (s *debts) note(op *limit.Op, now, ends limit.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byKey[op.Key]
	switch {
	case d == nil && op.Cost < 0:
		return true // of what was taken on the primary; never a refund there
	case d == nil && !s.room(now):
		return false
	case d == nil:
		// The group is a piece of a request, which should not stay for its sake.
		d = &debt{key: limit.Key{Group: strings.Clone(op.Key.Group), Limit: op.Key.Limit}}
		s.byKey[d.key] = d
	}
	d.of, d.ends = op.Limit, ends
	d.since = max(d.since+op.Cost, 0)
	return true
}

// room makes room for one more, if that is possible by dropping what is over.
// It looks for that once a second at most: a search is as long as the shard.
func (s *debts) room(now limit.Instant) bool {
	const second = 1e6
	if len(s.byKey) < s.max {
		return true
	}
	if passed := now - s.swept; passed >= 0 && passed < second {
		return false
	}
	s.swept = now
	for k, d := range s.byKey {
		if d.ends <= now {
			delete(s.byKey, k)
		}
	}
	return len(s.byKey) < s.max
}

// has says whether d was not forgotten meanwhile.
func (s *debts) has(d *debt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[d.key] == d
}

func (s *debts) drop(k *limit.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey, *k)
}

func (s *debts) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}

func (s *debts) appendTo(list []*debt) []*debt {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.byKey {
		list = append(list, d)
	}
	return list
}

// shares has this replica's share of each limit.
type shares struct {
	replicas int64
	max      int
	mu       sync.RWMutex
	of       map[*limit.Limit]*limit.Limit
}

func (s *shares) init(replicas, most int) {
	s.replicas, s.max, s.of = int64(replicas), max(most, 1), map[*limit.Limit]*limit.Limit{}
}

func (s *shares) get(whole *limit.Limit) *limit.Limit {
	if s.replicas <= 1 || whole == nil {
		return whole
	}
	s.mu.RLock()
	l := s.of[whole]
	s.mu.RUnlock()
	if l != nil {
		return l
	}
	l = share(whole, s.replicas)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) >= s.max {
		clear(s.of) // of rules that are gone, most likely
	}
	s.of[whole] = l
	return l
}

// share returns the n-th part of a limit, rounded down but not below a unit. A
// token bucket's rate is divided exactly where its window can grow for it.
func share(whole *limit.Limit, n int64) *limit.Limit {
	spec := whole.Spec()
	if spec.Algorithm == limit.TokenBucket {
		spec.Burst = part(spec.Burst, n)
		if slow := spec; int64(spec.Window) <= int64(limit.MaxWindow)/n {
			slow.Window *= time.Duration(n)
			if l, err := limit.New(slow); err == nil {
				return l
			}
		}
	}
	spec.Max = part(spec.Max, n)
	for {
		l, err := limit.New(spec)
		if err == nil {
			return l
		}
		// Only a bucket that takes too long to refill; one of a unit never does.
		spec.Burst = part(spec.Burst, 2)
	}
}

func part(units, n int64) int64 {
	if units == 0 {
		return 0
	}
	return max(units/n, 1)
}

// work is the memory for requests with other limits.
type work struct {
	reqs []limit.Request
	ops  []limit.Op
}

var works = sync.Pool{New: func() any { return new(work) }}

// derive returns a copy of reqs with this replica's share of their limits.
func (w *work) derive(s *shares, reqs []limit.Request) []limit.Request {
	for i := range reqs {
		for _, op := range reqs[i].Ops {
			op.Limit = s.get(op.Limit)
			w.ops = append(w.ops, op)
		}
	}
	ops := w.ops
	for i := range reqs {
		n := len(reqs[i].Ops)
		w.reqs = append(w.reqs, limit.Request{At: reqs[i].At, Ops: ops[:n:n]})
		ops = ops[n:]
	}
	return w.reqs
}

// free gives w back without what it points to.
func (w *work) free() {
	clear(w.reqs)
	clear(w.ops)
	w.reqs, w.ops = w.reqs[:0], w.ops[:0]
	works.Put(w)
}

// Forget drops the state under keys here, and what is owed for it.
func (l *Local) Forget(ctx context.Context, keys []limit.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.inner.Forget(ctx, keys); err != nil {
		return err
	}
	for i := range keys {
		l.debtsOf(&keys[i]).drop(&keys[i])
	}
	return nil
}

// Ping asks the local backend.
func (l *Local) Ping(ctx context.Context) error { return l.inner.Ping(ctx) }

// Close closes the local backend, and forgets what is owed. To the primary it
// does nothing.
func (l *Local) Close() error { return l.inner.Close() }

// Pending returns how many keys are remembered to be charged.
func (l *Local) Pending() int {
	n := 0
	for i := range l.debts {
		n += l.debts[i].len()
	}
	return n
}

// LocalStats are figures for an operator. All but the first only grow.
type LocalStats struct {
	Pending int
	// Overflow counts admissions that were not remembered, because MaxKeys
	// were.
	Overflow uint64
	// Charged counts keys that were settled with the primary and Units what
	// they were charged. Short counts units for which there was no room.
	Charged, Units, Short uint64
	// Ended counts keys whose units no longer counted, Refused those that the
	// primary cannot keep at all.
	Ended, Refused uint64
}

// Stats returns the present figures.
func (l *Local) Stats() LocalStats {
	return LocalStats{
		Pending: l.Pending(), Overflow: l.overflow.Load(),
		Charged: l.charged.Load(), Units: l.units.Load(), Short: l.short.Load(),
		Ended: l.ended.Load(), Refused: l.refused.Load(),
	}
}
