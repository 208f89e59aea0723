package memory

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend keeps state in sharded maps.
type Backend struct {
	cfg    Config
	caps   backends.Caps
	seed   maphash.Seed
	shards []shard // a power of two, at most backends.MaxShards
	leases atomic.Int64

	records atomic.Int64
	warned  atomic.Int64

	registry backends.Registry
}

var (
	_ backends.Backend   = (*Backend)(nil)
	_ backends.Registrar = (*Backend)(nil)
)

// New returns an empty backend.
func New(cfg Config) *Backend {
	cfg.MaxKeys = cmp.Or(max(cfg.MaxKeys, 0), defaultMaxKeys)
	cfg.MaxLeases = cmp.Or(max(cfg.MaxLeases, 0), defaultMaxLeases)
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return time.Time{} }
	}
	cfg.MaxRecords = cmp.Or(max(cfg.MaxRecords, 0), defaultMaxRecords)
	n := backends.ShardCount(cfg.MaxKeys)
	b := &Backend{cfg: cfg, caps: Caps().Indexed(), seed: maphash.MakeSeed(), shards: make([]shard, n)}
	b.registry = NewRegistry(cfg.Now)
	for i := range b.shards {
		b.shards[i].leases = &b.leases
		b.shards[i].records, b.shards[i].maxRecords = &b.records, int64(cfg.MaxRecords)
		b.shards[i].init((cfg.MaxKeys + n - 1) / n)
	}
	return b
}

// Take decides each request under the locks of the shards it touches. There
// is nothing to wait for, so ctx is not asked.
func (b *Backend) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	for n := 0; len(reqs) > 0; reqs, out = reqs[n:], out[n:] {
		n = 1
		evicted := false
		if req := &reqs[0]; len(req.Ops) == 1 {
			n = alike(reqs)
			evicted = b.takeAlike(reqs[:n], out[:n])
		} else if b.checked(req, &out[0]) {
			evicted = b.takeMany(req, &out[0])
		}
		if evicted {
			b.warn(reqs[0].At)
		}
	}
}

// checked reports whether req can be taken, or says in v why not.
func (b *Backend) checked(req *limit.Request, v *limit.Verdict) bool {
	if err := b.check(req); err != nil {
		v.Fail(err)
		return false
	}
	return true
}

// maxAlike is how many requests are decided under a lock before others get it.
const maxAlike = 64

// alike returns how many of the first requests have, as the first one has, one op
// under its key. Where all callers share a key, its lock is what they wait for.
func alike(reqs []limit.Request) int {
	key := &reqs[0].Ops[0].Key
	n := 1
	for n < min(len(reqs), maxAlike) && len(reqs[n].Ops) == 1 && reqs[n].Ops[0].Key == *key {
		n++
	}
	return n
}

var errFull = fmt.Errorf("%w: %w: as many requests are in flight as memory has room for", backends.ErrUnavailable,
	backends.ErrNotApplied)

// check reports why req cannot be taken.
func (b *Backend) check(req *limit.Request) error {
	if err := b.caps.CheckRequest(req); err != nil {
		return err
	}
	if b.leases.Load() < int64(b.cfg.MaxLeases) {
		return nil
	}
	for i := range req.Ops {
		if op := &req.Ops[i]; op.Cost > 0 && op.Limit.Is(limit.Leased) {
			return errFull
		}
	}
	return nil
}

// takeAlike decides requests of one op each, all under the same key, one after the
// other. It reports whether other state had to go.
func (b *Backend) takeAlike(reqs []limit.Request, out []limit.Verdict) (evicted bool) {
	key := &reqs[0].Ops[0].Key
	hash := b.hash(key)
	s := b.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.table.find(hash, key)
	for i := range reqs {
		req, v := &reqs[i], &out[i]
		if e != nil && e.knows(req) {
			s.take(e, req, v)
			continue
		}
		if !b.checked(req, v) {
			continue
		}
		var states, scratch [1]limit.State
		if e != nil {
			e.load(&states[0])
		}
		changed := limit.Decide(states[:], req, req.At, v, scratch[:]).Has(0)
		switch {
		case e != nil && (changed || states[0].Leases != nil): // some may have expired
			s.update(e, &states[0], req.Ops[0].Limit, req.At)
		case e == nil && changed:
			evicted = s.insert(hash, key, &states[0], req.Ops[0].Limit, req.At) || evicted
			e = s.table.find(hash, key)
		}
	}
	return evicted
}

// work is the memory that deciding several ops needs.
type work struct {
	hashes  []uint32
	entries []*entry
	states  []limit.State
	scratch []limit.State
}

var works = sync.Pool{New: func() any { return new(work) }}

func (w *work) grow(n int) {
	if cap(w.hashes) < n {
		w.hashes, w.entries = make([]uint32, n), make([]*entry, n)
		w.states, w.scratch = make([]limit.State, n), make([]limit.State, n)
	}
	w.hashes, w.entries = w.hashes[:n], w.entries[:n]
	w.states, w.scratch = w.states[:n], w.scratch[:n]
}

// free gives w back without what it points to.
func (w *work) free() {
	clear(w.entries)
	clear(w.states)
	clear(w.scratch)
	works.Put(w)
}

// takeMany decides a request of several ops in one step: all shards it needs
// are locked, in ascending order.
func (b *Backend) takeMany(req *limit.Request, v *limit.Verdict) (evicted bool) {
	w := works.Get().(*work)
	defer w.free()
	w.grow(len(req.Ops))
	var set uint64
	for i := range req.Ops {
		w.hashes[i] = b.hash(&req.Ops[i].Key)
		set |= 1 << b.index(w.hashes[i])
	}
	b.lock(set)
	defer b.unlock(set)
	for i := range req.Ops {
		w.entries[i] = b.shard(w.hashes[i]).table.find(w.hashes[i], &req.Ops[i].Key)
		if w.entries[i] != nil {
			w.entries[i].load(&w.states[i]) // which is zero: see free
		}
	}
	return b.store(w, req, limit.Decide(w.states, req, req.At, v, w.scratch))
}

// store keeps the states in w that have changed. Entries that exist come first: making room for
// a new one may drop them.
func (b *Backend) store(w *work, req *limit.Request, changes limit.Changes) (evicted bool) {
	for i := range req.Ops {
		if e := w.entries[i]; e != nil && (changes.Has(i) || w.states[i].Leases != nil && first(req.Ops, i)) {
			b.shard(w.hashes[i]).update(e, &w.states[i], req.Ops[i].Limit, req.At)
		}
	}
	for i := range req.Ops {
		if w.entries[i] == nil && changes.Has(i) {
			op := &req.Ops[i]
			if b.shard(w.hashes[i]).insert(w.hashes[i], &op.Key, &w.states[i], op.Limit, req.At) {
				evicted = true
			}
		}
	}
	return evicted
}

// first reports whether no op before i has its key; that one's state counts.
func first(ops []limit.Op, i int) bool {
	for j := range ops[:i] {
		if ops[j].Key == ops[i].Key {
			return false
		}
	}
	return true
}

func (b *Backend) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		b.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (b *Backend) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		b.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// hash is seeded by chance: clients choose keys and must not choose shards.
func (b *Backend) hash(k *limit.Key) uint32 {
	h := uint64(1)
	if len(k.Limit) <= 4 { // as most are; it says all of it
		for i := range len(k.Limit) {
			h = h<<8 | uint64(k.Limit[i])
		}
	} else {
		h = bits.RotateLeft64(maphash.String(b.seed, k.Limit), 32)
	}
	return uint32((h*0x9e3779b97f4a7c15 ^ maphash.String(b.seed, k.Group)) >> 32)
}

func (b *Backend) index(hash uint32) int { return int(hash>>26) & (len(b.shards) - 1) }

func (b *Backend) shard(hash uint32) *shard { return &b.shards[b.index(hash)] }

// warn reports that MaxKeys was reached, once a minute of the requests' time.
func (b *Backend) warn(now limit.Instant) {
	last := b.warned.Load()
	if passed := int64(now) - last; last != 0 && passed >= 0 && passed < int64(warnEvery) {
		return
	}
	if b.cfg.Log != nil && b.warned.CompareAndSwap(last, int64(now)) {
		b.cfg.Log.Warn("memory backend is full and evicts counters in use; raise max_keys",
			"max_keys", b.cfg.MaxKeys, "evicted", b.Stats().Evicted)
	}
}

// Forget drops the state under keys.
func (b *Backend) Forget(_ context.Context, keys []limit.Key) error {
	for i := range keys {
		hash := b.hash(&keys[i])
		s := b.shard(hash)
		s.mu.Lock()
		if e := s.table.find(hash, &keys[i]); e != nil {
			s.remove(e)
		}
		s.mu.Unlock()
	}
	return nil
}

// Ping reports no error: memory is there.
func (b *Backend) Ping(context.Context) error { return nil }

// Close lets go of all state.
func (b *Backend) Close() error {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for _, e := range s.queue {
			if e.large != nil {
				s.setCount(e.large, 0)
				s.setRecords(e.large, 0)
			}
		}
		s.init(s.max)
		s.mu.Unlock()
	}
	return nil
}

// Sweep drops the state that is over at now. Takes do that too, as they need
// room; calling Sweep every second or so lets memory go when there are none.
func (b *Backend) Sweep(now limit.Instant) {
	for i := range b.shards {
		for b.shards[i].sweep(now) {
		}
	}
}

// Registry implements [backends.Registrar].
func (b *Backend) Registry() backends.Registry { return b.registry }
