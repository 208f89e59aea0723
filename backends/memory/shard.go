package memory

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A shard is a share of the keys under one lock.
type shard struct {
	mu      sync.Mutex
	max     int
	entries map[uint64]*entry // by hash; what collides is chained
	queue   []*entry          // a heap by due: queue[0] ends first
	budgets budgets
	most    int // largest len(queue) since the map was made
	expired uint64
	evicted uint64
	leases  *atomic.Int64 // of all shards

	records    *atomic.Int64 // of all shards
	maxRecords int64
	merged     uint64

	_ [64]byte // the next shard's lock is on another cache line
}

// An entry is the state under one key.
type entry struct {
	key    limit.Key
	hash   uint64
	next   *entry // with the same hash
	state  limit.State
	leases int64 // in state, when it was written

	records int64 // that the memory of state.Log has room for

	// ends is when the state is as good as unused. due is what the queue is
	// sorted by, and never later: takes mostly move ends away, and putting an
	// entry right only when it comes first saves moving it on each take.
	ends, due limit.Instant
	at        int32 // in the queue
	place     int32 // in the budget
	budget    *budget
	of        *limit.Limit // the one that wrote the state last
}

func (s *shard) init(most int) {
	s.max, s.entries, s.queue, s.most = most, map[uint64]*entry{}, nil, 0
	s.budgets.init()
}

func (s *shard) find(hash uint64, key *limit.Key) *entry {
	e := s.entries[hash]
	for e != nil && e.key != *key {
		e = e.next
	}
	return e
}

// update stores what l made of e's state at now. The end of a state that is not
// updated stays with the limit that wrote it.
func (s *shard) update(e *entry, next *limit.State, l *limit.Limit, now limit.Instant) {
	e.ends = l.Ends(*next)
	if e.of != l {
		e.of = l
	}
	if old := &e.state; old.Log == nil && next.Log == nil && old.Leases == nil && next.Leases == nil {
		old.At, old.N, old.M = next.At, next.N, next.M // no pointers, which the collector would have to know
	} else {
		log := old.Log
		e.state = *next
		s.count(e, now)
		if len(e.state.Log) > 0 || e.records > 0 {
			s.countRecords(e, log)
		}
	}
	if e.ends < e.due {
		e.due = e.ends
		s.up(e.at)
	}
}

// anyLease asks about leases whatever their limit is.
var anyLease = limit.Op{
	Limit: limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: limit.MinWindow})}

// count adds to the leases of all shards what has changed under e.
func (s *shard) count(e *entry, now limit.Instant) {
	if e.state.Leases == nil {
		return
	}
	_, out := limit.Step(e.state, &anyLease, now)
	s.setCount(e, limit.MaxInFlight-out.Remaining)
}

// countRecords adds to the records of all shards what has changed under e, whose
// log was log, and makes the log coarser if they are too many.
func (s *shard) countRecords(e *entry, log []limit.Record) {
	if sameMemory(log, e.state.Log) {
		return
	}
	grown := int64(cap(e.state.Log)) > e.records
	s.setRecords(e, int64(cap(e.state.Log)))
	if grown && len(e.state.Log) > minRecords && s.records.Load() > s.maxRecords {
		e.state = e.state.Coarser()
		s.setRecords(e, int64(cap(e.state.Log)))
		s.merged++
	}
}

// sameMemory reports whether b is what is left of a, which may have lost records in
// front and got others at its end.
func sameMemory(a, b []limit.Record) bool {
	gone := cap(a) - cap(b)
	return gone >= 0 && cap(b) > 0 && &a[:cap(a)][gone] == &b[:1][0]
}

func (s *shard) setRecords(e *entry, n int64) {
	if n != e.records {
		s.records.Add(n - e.records)
		e.records = n
	}
}

func (s *shard) setCount(e *entry, n int64) {
	if n != e.leases {
		s.leases.Add(n - e.leases)
		e.leases = n
	}
}

// insert stores a new key's state. It reports whether another state had to go for
// it.
func (s *shard) insert(hash uint64, key *limit.Key, state *limit.State, l *limit.Limit,
	now limit.Instant) (evicted bool) {
	ends := l.Ends(*state)
	if state.Leases != nil && ends == 0 {
		return false // leases that came and went
	}
	s.expire(now, 2) // so that what is over goes faster than what is new comes
	if len(s.queue) >= s.max {
		evicted = s.evict(now)
	}
	e := &entry{hash: hash, state: *state, ends: ends, at: int32(len(s.queue)), next: s.entries[hash], of: l}
	// The group is a piece of a request, which should not stay for its sake.
	e.key = limit.Key{Group: strings.Clone(key.Group), Limit: key.Limit}
	e.due = e.ends
	s.entries[hash] = e
	s.queue = append(s.queue, e)
	s.budgets.add(e)
	s.up(e.at)
	s.most = max(s.most, len(s.queue))
	s.count(e, now)
	s.setRecords(e, int64(cap(e.state.Log)))
	return evicted
}

// expire takes up to steps steps of dropping what is over. It reports whether
// there may be more.
func (s *shard) expire(now limit.Instant, steps int) bool {
	for ; steps > 0; steps-- {
		if len(s.queue) == 0 || s.queue[0].due+grace > now {
			return false
		}
		if s.settle() {
			s.remove(s.queue[0])
			s.expired++
		}
	}
	return true
}

// settle reports whether the first of the queue is in its place, or else moves it
// there.
func (s *shard) settle() bool {
	e := s.queue[0]
	if e.due == e.ends {
		return true
	}
	e.due = e.ends
	s.down(0)
	return false
}

// evict drops a state: one that is over, or else the one that budgets name. It reports whether that was a loss.
func (s *shard) evict(now limit.Instant) bool {
	for !s.settle() {
	}
	if e := s.queue[0]; e.ends <= now {
		s.remove(e)
		s.expired++
		return false
	}
	s.remove(s.budgets.victim(now))
	s.evicted++
	return true
}

// sweep drops some of what is over, and reports whether to call it again: other
// callers get the lock in between.
func (s *shard) sweep(now limit.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expire(now, 1024) {
		return true
	}
	s.shrink()
	return false
}

// shrink makes smaller what has become far too large; a map does not shrink
// by itself.
func (s *shard) shrink() {
	if s.most < backends.MinShardKeys || len(s.queue) > s.most/8 {
		return
	}
	entries := make(map[uint64]*entry, len(s.queue))
	for hash, e := range s.entries {
		entries[hash] = e
	}
	s.entries, s.queue, s.most = entries, append([]*entry(nil), s.queue...), len(s.queue)
}

func (s *shard) remove(e *entry) {
	s.setCount(e, 0)
	s.setRecords(e, 0)
	s.budgets.remove(e)
	if p := s.entries[e.hash]; p != e {
		for p.next != e {
			p = p.next
		}
		p.next = e.next
	} else if e.next != nil {
		s.entries[e.hash] = e.next
	} else {
		delete(s.entries, e.hash)
	}
	last := len(s.queue) - 1
	moved := s.queue[last]
	s.queue[last] = nil
	s.queue = s.queue[:last]
	if moved != e {
		s.put(e.at, moved)
		s.up(moved.at)
		s.down(moved.at)
	}
}

func (s *shard) put(i int32, e *entry) { s.queue[i], e.at = e, i }

// up and down move the entry at i to its place in the heap.

func (s *shard) up(i int32) {
	e := s.queue[i]
	for i > 0 {
		parent := (i - 1) / 2
		if s.queue[parent].due <= e.due {
			break
		}
		s.put(i, s.queue[parent])
		i = parent
	}
	s.put(i, e)
}

func (s *shard) down(i int32) {
	e := s.queue[i]
	for {
		child := 2*i + 1
		if int(child) >= len(s.queue) {
			break
		}
		if int(child)+1 < len(s.queue) && s.queue[child+1].due < s.queue[child].due {
			child++
		}
		if e.due <= s.queue[child].due {
			break
		}
		s.put(i, s.queue[child])
		i = child
	}
	s.put(i, e)
}
