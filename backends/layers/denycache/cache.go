package denycache

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

const ways = 8 // refusals in a set

// A cache keeps refusals in shards, each with a share of the keys under one lock.
type cache struct {
	seeds  [2]maphash.Seed
	shards []shard // a power of two, at most backends.MaxShards
	gen    atomic.Uint64
}

type shard struct {
	mu        sync.Mutex
	sets      []set
	used      int
	evictions uint64
	hits      atomic.Uint64 // counted without the lock, like recalled
	recalled  atomic.Uint64
	_         [64]byte // the next shard's lock is on another cache line
}

// A set is the few places where a key can be.
type set struct {
	ids      [ways]id // 0: free
	refusals [ways]packed
	oldest   uint8
}

// An id stands for a key among those of its set.
type id uint64

func (c *cache) init(keys int) {
	n := backends.ShardCount(keys)
	c.seeds, c.shards = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, make([]shard, n)
	for i := range c.shards {
		c.shards[i].sets = make([]set, max(1, keys/n/ways))
	}
}

// place returns where k belongs. Groups hold what clients choose and differ in two
// hashes; names of limits are the operator's, and few, so that one is enough.
func (c *cache) place(k *limit.Key) (*shard, *set, id) {
	name := maphash.String(c.seeds[0], k.Limit)
	at := name*0x9e3779b97f4a7c15 ^ maphash.String(c.seeds[0], k.Group)
	s := &c.shards[int(at>>58)&(len(c.shards)-1)]
	return s, &s.sets[uint64(uint32(at))*uint64(len(s.sets))>>32],
		id(bits.RotateLeft64(name, 32)*0x9e3779b97f4a7c15 ^ maphash.String(c.seeds[1], k.Group) | 1)
}

// find returns the way of key, or -1.
func (t *set) find(key id) int {
	for w := range t.ids {
		if t.ids[w] == key {
			return w
		}
	}
	return -1
}

// find returns the way of key in a set of s, or -1. Where nothing is kept it leaves the set, which is in no
// processor's cache, alone.
func (s *shard) find(t *set, key id) int {
	if s.used == 0 {
		return -1
	}
	return t.find(key)
}

// get returns what is kept for op, or a refusal without a limit. What was learnt under
// another limit goes: a take under this one may make room there.
func (c *cache) get(op *limit.Op) (p packed, s *shard) {
	s, set, key := c.place(&op.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.find(set, key)
	if w < 0 {
		return p, s
	}
	if p = set.refusals[w]; !p.limit.Same(op.Limit) {
		s.remove(set, w)
		return packed{}, s
	}
	return p, s
}

// put keeps r for k, unless something was dropped since gen, or it does not fit.
func (c *cache) put(k *limit.Key, r *refusal, gen uint64) {
	packed, fits := r.pack()
	if !fits {
		c.forget(k, math.MaxInt64)
		return
	}
	s, set, key := c.place(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gen.Load() != gen {
		return
	}
	w := set.find(key)
	if w < 0 {
		if w = set.find(0); w >= 0 {
			s.used++
		} else {
			w = set.worst(r.sent)
			s.evictions++
		}
	}
	set.ids[w], set.refusals[w] = key, packed
}

// worst returns the way of a refusal that is over, or else of the oldest, whose turn then is the next one's.
func (t *set) worst(now time.Duration) int {
	for w := range t.refusals {
		if r := t.refusals[w].unpack(); r.retry != limit.Never && r.sent+r.retry <= now {
			return w
		}
	}
	w := int(t.oldest)
	t.oldest = (t.oldest + 1) % ways
	return w
}

// forget forgets what is kept for k of a cost or less. Refusals on their way here are kept: they are no older.
func (c *cache) forget(k *limit.Key, cost int64) {
	s, set, key := c.place(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.find(set, key); w >= 0 && set.refusals[w].unpack().cost <= cost {
		s.remove(set, w)
	}
}

// drop forgets what is kept for k. Refusals on their way here, of whatever key, are
// not kept either: to ask for them once more costs little, and drops are rare.
func (c *cache) drop(k *limit.Key) {
	c.gen.Add(1)
	c.forget(k, math.MaxInt64)
}

func (s *shard) remove(set *set, w int) {
	set.ids[w], set.refusals[w] = 0, packed{}
	s.used--
}

// A refusal is the outcome of an op that had no room, or that had room in a request
// that another op refused.
type refusal struct {
	limit *limit.Limit
	cost  int64         // at least one: a question counts as a cost of one
	at    limit.Instant // of the store's verdict
	sent  time.Duration // when the store was asked, on this cache's clock
	room  bool          // it is no refusal
	// recall: of use only while the store cannot be asked, as the store takes something all the same
	recall bool

	remaining    int64
	retry, reset time.Duration // from at; retry may be limit.Never
}

// learn makes r of an outcome, and reports whether it is worth keeping. keeps says that it may be used while
// the store answers. A limit that saturates takes something of costs without room: only where nothing is
// left is a later request sure to change nothing.
func (r *refusal) learn(op *limit.Op, out *limit.Outcome, at limit.Instant, keeps bool) bool {
	*r = refusal{limit: op.Limit, cost: max(op.Cost, 1), at: at, room: out.Admitted, recall: !keeps,
		remaining: out.Remaining, retry: out.Retry, reset: out.Reset}
	if r.recall && r.room {
		return false
	}
	if !r.room && r.cost > 1 && keeps && op.Limit.Overflow() != limit.Refuse {
		if op.Limit.Is(limit.Isolated) && op.Limit.Capacity() > 0 {
			r.cost, r.retry = 1, r.reset // no unit comes back before the window ends
		} else {
			r.recall = true
		}
	}
	return r.room || r.retry > 0 || r.retry == limit.Never
}

// answer tells what the store would say to cost at instant now, and whether it refuses.
func (r *refusal) answer(cost int64, now limit.Instant, out *limit.Outcome) bool {
	passed := now.Sub(r.at)
	cost = max(cost, 1)
	switch {
	case r.room && cost == r.cost:
		*out = limit.Outcome{Admitted: true, Remaining: r.remaining, Reset: max(r.reset-passed, 0)}
		return false
	case r.room || cost < r.cost || passed < 0 || r.retry != limit.Never && passed >= r.retry:
		return false
	}
	*out = limit.Outcome{Remaining: r.remaining, Retry: limit.Never, Reset: max(r.reset-passed, 0)}
	if r.retry != limit.Never && cost <= r.limit.Capacity() {
		out.Retry = r.retry - passed
	}
	return true
}
