package denycache

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A cache keeps refusals in shards, each a share of the keys under one lock.
type cache struct {
	seeds  [2]maphash.Seed
	shards []shard // a power of two, at most backends.MaxShards
	maxAge time.Duration
}

type shard struct {
	mu      sync.Mutex
	sets    []set
	entries []entry // ways for each set
	used    int

	evictions, invalidations uint64

	hits    atomic.Uint64 // counted without the lock
	inserts atomic.Uint64 // counted with it, read without

	_ [64]byte // the next shard's lock is on another cache line
}

// A set is the few places where a key can be. Tags are apart from entries so
// that a key which is not there costs one cache line.
type set struct {
	tags [ways]uint32 // zero: free
	// gen changes with each change that makes refusals wrong which are still
	// on their way here. It is the set's and not the key's: then it needs no
	// memory for keys that are not kept, and a neighbour's change costs no more
	// than asking the store once again.
	gen  uint32
	hand uint8 // the place whose entry goes next
}

type entry struct {
	id id
	refusal
}

// An id stands for a key.
type id struct{ a, b uint64 }

// A place is where a key's refusals are.
type place struct {
	id  id
	s   *shard
	set int
	tag uint32
}

func (c *cache) init(maxKeys int, maxAge time.Duration) {
	n := backends.ShardCount(maxKeys)
	c.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	c.maxAge = maxAge
	c.shards = make([]shard, n)
	for i := range c.shards {
		sets := max(1, maxKeys/n/ways)
		c.shards[i].sets = make([]set, sets)
		c.shards[i].entries = make([]entry, sets*ways)
	}
}

// place finds the place of k. Seeds are drawn by chance: clients choose keys
// and must not choose places. What differs in its group differs in two hashes;
// names of limits are the operator's, and few, so that one is enough.
func (c *cache) place(k *limit.Key) place {
	name := maphash.String(c.seeds[0], k.Limit)
	p := place{id: id{
		name*0x9e3779b97f4a7c15 ^ maphash.String(c.seeds[0], k.Group),
		bits.RotateLeft64(name, 32)*0x9e3779b97f4a7c15 ^ maphash.String(c.seeds[1], k.Group),
	}}
	p.s = &c.shards[int(p.id.a>>58)&(len(c.shards)-1)]
	p.set = int(uint64(uint32(p.id.a)) * uint64(len(p.s.sets)) >> 32)
	p.tag = uint32(p.id.b) | 1
	return p
}

// A find is what the cache has for one op.
type find struct {
	place
	gen     uint32 // of the set when it was looked at
	inserts uint64 // of the shard then
	present bool   // something is kept under the key, of whatever limit and cost
	found   bool   // refusal is about the op's limit and cost
	seen    bool   // it is not, but it has the op's last outcome
	refusal

	known   bool // the op has no room now, and this is its outcome
	outcome limit.Outcome
}

// lastSeen is the outcome of an op that does not decide: its last outcome, or
// without one that of an unused limit.
func (f *find) lastSeen(op *limit.Op, now limit.Instant) limit.Outcome {
	if f.seen {
		return limit.Outcome{Admitted: true, Remaining: f.remaining, Reset: max(f.reset-max(now.Sub(f.at), 0), 0)}
	}
	most := op.Limit.Capacity()
	if op.Cost > most {
		return limit.Outcome{Remaining: most, Retry: limit.Never}
	}
	return limit.Outcome{Admitted: true, Remaining: most}
}

// lookup fills f, whose place is set, for op of a request that came at now.
func (c *cache) lookup(f *find, op *limit.Op, given bool, now time.Duration) {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	set := &s.sets[f.set]
	f.gen, f.inserts = set.gen, s.inserts.Load()
	for w := range set.tags {
		if set.tags[w] != f.tag {
			continue
		}
		e := s.entry(f.set, w)
		if e.id != f.id {
			continue
		}
		if now-e.sent >= c.maxAge {
			s.remove(f.set, w)
			continue
		}
		f.present = true
		switch {
		case e.given != given || e.cost > op.Cost || !e.limit.Same(op.Limit):
		case e.room:
			if !f.found && e.cost == op.Cost {
				f.seen, f.refusal = true, e.refusal
			}
		case !f.found || e.cost > f.cost: // the same cost's wait is exact
			f.found, f.seen, f.refusal = true, false, e.refusal
		}
	}
}

func (s *shard) entry(set, way int) *entry { return &s.entries[set*ways+way] }

func (s *shard) remove(set, way int) {
	s.sets[set].tags[way] = 0
	*s.entry(set, way) = entry{}
	s.used--
}

// insert keeps r at p, unless it may have become wrong since gen.
func (p *place) insert(r *refusal, gen uint32) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets[p.set].gen != gen {
		return
	}
	s.inserts.Add(1)
	way := p.room(r)
	s.sets[p.set].tags[way] = p.tag
	*s.entry(p.set, way) = entry{id: p.id, refusal: *r}
}

// room returns where r goes: to the refusal that it renews, else where nothing
// is, else to the one that came before the others.
func (p *place) room(r *refusal) int {
	s, free := p.s, -1
	set := &s.sets[p.set]
	for w, tag := range set.tags {
		switch tag {
		case 0:
			if free < 0 {
				free = w
			}
		case p.tag:
			e := s.entry(p.set, w)
			if e.id == p.id && e.cost == r.cost && e.given == r.given && e.limit.Same(r.limit) {
				return w
			}
		}
	}
	if free >= 0 {
		s.used++
		return free
	}
	oldest := int(set.hand)
	set.hand = (set.hand + 1) % ways
	s.evictions++
	return oldest
}

// changed says whether something may have been kept under f's key since f was
// looked up.
func (f *find) changed() bool { return f.s.inserts.Load() != f.inserts }

// drop lets go of all refusals at p. With inFlight, those on their way here
// will not be kept either. It returns what later ones are kept for.
func (p *place) drop(inFlight bool) (gen uint32) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	set := &s.sets[p.set]
	for w, tag := range set.tags {
		if tag == p.tag && s.entry(p.set, w).id == p.id {
			s.remove(p.set, w)
			s.invalidations++
		}
	}
	if inFlight {
		set.gen++
	}
	return set.gen
}

// flush lets go of everything.
func (s *shard) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sets {
		s.sets[i].tags = [ways]uint32{}
		s.sets[i].gen++
	}
	clear(s.entries)
	s.invalidations += uint64(s.used)
	s.used = 0
}
