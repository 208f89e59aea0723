package prefetch

import (
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A shard is a share of the holdings under one lock.
type shard struct {
	mu    sync.Mutex
	max   int
	used  int
	byKey map[limit.Key]*holding // of several limits on one key the first
	fixed list
	auto  list

	hits, taken, expired, returned, full uint64

	_ [64]byte // the next shard's lock is on another cache line
}

func (s *shard) init(most int) { s.max, s.byKey = most, map[limit.Key]*holding{} }

// find returns the units held for op, nil if nothing is known of it. A limit of
// other figures has a holding of its own, as have instants that callers give.
func (s *shard) find(op *limit.Op, given bool) *holding {
	h, auto := s.byKey[op.Key], op.Limit.Share() == limit.AutoShare
	for h != nil && !(h.given == given && h.auto == auto && h.limit.Same(op.Limit)) {
		h = h.next
	}
	return h
}

// add makes a holding for op, or returns nil if there is no room for it.
func (s *shard) add(op *limit.Op, given bool, now time.Duration) *holding {
	if !s.room(now) {
		s.full++
		return nil
	}
	// The group is a piece of a request, which should not stay for its sake.
	h := &holding{key: limit.Key{Group: strings.Clone(op.Key.Group), Limit: op.Key.Limit}, limit: op.Limit, given: given,
		auto: op.Limit.Share() == limit.AutoShare, adaptive: adaptive{pace: pace{second: now}}}
	h.next = s.byKey[h.key]
	s.byKey[h.key] = h
	s.used++
	s.list(h).link(h)
	return h
}

// room drops what has been unused for long and is over, and reports whether there
// is room for one more. What is in use keeps its place: callers choose keys, and
// must not be able to have others' units dropped.
func (s *shard) room(now time.Duration) bool {
	for _, l := range []*list{&s.fixed, &s.auto} {
		for range maxSweep {
			h := l.last
			if h == nil || !h.over(now) && (s.used < s.max || now-h.usedAt < idle) {
				break
			}
			s.drop(h)
		}
	}
	return s.used < s.max
}

// list returns the list that h is in.
func (s *shard) list(h *holding) *list {
	if h.auto {
		return &s.auto
	}
	return &s.fixed
}

// use makes h the one that was used last.
func (s *shard) use(h *holding, now time.Duration) {
	h.usedAt = now
	if l := s.list(h); l.first != h {
		l.unlink(h)
		l.link(h)
	}
}

// A list has holdings in the order in which they were used.
type list struct {
	first *holding // used last
	last  *holding
}

func (l *list) link(h *holding) {
	h.older = l.first
	if l.first != nil {
		l.first.newer = h
	} else {
		l.last = h
	}
	l.first = h
}

func (l *list) unlink(h *holding) {
	if h.newer != nil {
		h.newer.older = h.older
	} else {
		l.first = h.older
	}
	if h.older != nil {
		h.older.newer = h.newer
	} else {
		l.last = h.newer
	}
	h.newer, h.older = nil, nil
}

// drop forgets h. Its units expire, also those under way.
func (s *shard) drop(h *holding) {
	s.list(h).unlink(h)
	s.used--
	s.clear(h)
	h.gone = true
	if first := s.byKey[h.key]; first != h {
		for first.next != h {
			first = first.next
		}
		first.next = h.next
	} else if h.next != nil {
		s.byKey[h.key] = h.next
	} else {
		delete(s.byKey, h.key)
	}
}

// clear drops the units of h.
func (s *shard) clear(h *holding) {
	s.expired += uint64(h.left)
	h.left, h.returnable = 0, 0
	h.epoch++
}

// forget drops all that is held under k.
func (s *shard) forget(k *limit.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := s.byKey[*k]; h != nil; h = s.byKey[*k] {
		s.drop(h)
	}
}

func (s *shard) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range []*list{&s.fixed, &s.auto} {
		for l.last != nil {
			s.drop(l.last)
		}
	}
}
