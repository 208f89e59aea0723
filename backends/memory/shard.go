package memory

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A shard is a share of the keys under one lock.
type shard struct {
	mu      sync.Mutex
	max     int
	table   table
	queue   []*entry // a heap by due: queue[0] ends first
	budgets budgets
	most    int // largest len(queue) since the table was made
	expired uint64
	evicted uint64
	leases  *atomic.Int64 // of all shards

	records    *atomic.Int64 // of all shards
	maxRecords int64
	merged     uint64

	_ [64]byte // the next shard's lock is on another cache line
}

func (s *shard) init(most int) {
	s.max, s.table, s.queue, s.most = most, table{}, nil, 0
	s.budgets = budgets{of: map[limit.Spec]*budget{}}
}

// take decides a request that e knows.
func (s *shard) take(e *entry, req *limit.Request, v *limit.Verdict) {
	state := limit.State{At: e.at, N: e.n, M: e.m}
	if !limit.DecideOne(&state, req, v) {
		return
	}
	e.at, e.n, e.m = state.At, state.N, state.M
	s.ends(e, e.of.Ends(state))
}

// ends notes that e ends at another time than before.
func (s *shard) ends(e *entry, ends limit.Instant) {
	if ends < e.due {
		e.due = ends
		s.up(e.queued)
	}
}

// update stores what l made of e's state at now. The end of a state that is not
// updated stays with the limit that wrote it.
func (s *shard) update(e *entry, next *limit.State, l *limit.Limit, now limit.Instant) {
	if e.of != l {
		e.of = l
	}
	if e.large == nil && next.Log == nil && next.Leases == nil {
		e.at, e.n, e.m = next.At, next.N, next.M
	} else {
		s.updateLarge(e, next, now)
	}
	s.ends(e, l.Ends(*next))
}

// updateLarge stores a state that has a log or leases, or had.
func (s *shard) updateLarge(e *entry, next *limit.State, now limit.Instant) {
	log := e.state().Log
	e.set(next)
	s.count(e, now)
	if len(e.large.log) > 0 || e.large.records > 0 {
		s.countRecords(e, log)
	}
}

// count adds to the leases of all shards what has changed under e.
func (s *shard) count(e *entry, now limit.Instant) {
	if e.large != nil && e.large.leases != nil {
		s.setCount(e.large, e.large.leases.InFlight(now))
	}
}

// countRecords adds to the records of all shards what has changed under e, whose
// log was log, and makes the log coarser if they are too many.
func (s *shard) countRecords(e *entry, log []limit.Record) {
	if sameMemory(log, e.large.log) {
		return
	}
	grown := int64(cap(e.large.log)) > e.large.records
	s.setRecords(e.large, int64(cap(e.large.log)))
	if grown && len(e.large.log) > minRecords && s.records.Load() > s.maxRecords {
		coarser := e.state().Coarser()
		e.set(&coarser)
		s.setRecords(e.large, int64(cap(e.large.log)))
		s.merged++
	}
}

// sameMemory reports whether b is what is left of a, which may have lost records in
// front and got others at its end.
func sameMemory(a, b []limit.Record) bool {
	gone := cap(a) - cap(b)
	return gone >= 0 && cap(b) > 0 && &a[:cap(a)][gone] == &b[:1][0]
}

func (s *shard) setRecords(l *large, n int64) {
	if n != l.records {
		s.records.Add(n - l.records)
		l.records = n
	}
}

func (s *shard) setCount(l *large, n int64) {
	if n != l.count {
		s.leases.Add(n - l.count)
		l.count = n
	}
}

// insert stores a new key's state. It reports whether another state had to go for
// it.
func (s *shard) insert(hash uint32, key *limit.Key, state *limit.State, l *limit.Limit,
	now limit.Instant) (evicted bool) {
	ends := l.Ends(*state)
	if state.Leases != nil && ends == 0 {
		return false // leases that came and went
	}
	s.expire(now, 2) // so that what is over goes faster than what is new comes
	if len(s.queue) >= s.max {
		evicted = s.evict(now)
	}
	e := &entry{hash: hash, due: ends, of: l, queued: int32(len(s.queue))}
	// The group is a piece of a request, which should not stay for its sake.
	e.key, e.group = key.Group+key.Limit, int32(len(key.Group))
	e.set(state)
	s.table.add(e)
	s.queue = append(s.queue, e)
	s.budgets.add(e)
	s.up(e.queued)
	s.most = max(s.most, len(s.queue))
	s.count(e, now)
	if e.large != nil {
		s.setRecords(e.large, int64(cap(state.Log)))
	}
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
	ends := e.ends()
	if e.due == ends {
		return true
	}
	e.due = ends
	s.down(0)
	return false
}

// evict drops a state: one that is over, or else the one that budgets name. It reports whether that was a loss.
func (s *shard) evict(now limit.Instant) bool {
	for !s.settle() {
	}
	if s.queue[0].due <= now {
		s.remove(s.queue[0])
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

// shrink makes smaller what has become far too large.
func (s *shard) shrink() {
	if s.most < backends.MinShardKeys || len(s.queue) > s.most/8 {
		return
	}
	s.table, s.queue, s.most = table{}, append([]*entry(nil), s.queue...), len(s.queue)
	for _, e := range s.queue {
		s.table.add(e)
	}
}

func (s *shard) remove(e *entry) {
	if e.large != nil {
		s.setCount(e.large, 0)
		s.setRecords(e.large, 0)
	}
	s.budgets.remove(e)
	s.table.remove(e)
	last := len(s.queue) - 1
	moved := s.queue[last]
	s.queue[last] = nil
	s.queue = s.queue[:last]
	if moved != e {
		s.put(e.queued, moved)
		s.up(moved.queued)
		s.down(moved.queued)
	}
}

func (s *shard) put(i int32, e *entry) { s.queue[i], e.queued = e, i }

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
