package fallback

import (
	"strings"
	"sync"

	"github.com/headgate-rls/headgate/limit"
)

// A debt says that units under key were admitted here and are not charged. How many of
// them still count at most is in the inner backend's state.
type debt struct {
	key   limit.Key
	of    *limit.Limit  // the whole one, as it was last asked by
	ends  limit.Instant // nothing counts any more
	units int64         // admitted and not charged
	short int64         // of them, those for which the primary had no room when it was last asked
	next  limit.Instant // when it may have some
}

// debts is a shard of them.
type debts struct {
	mu    sync.Mutex
	max   int
	byKey map[limit.Key]*debt
	swept limit.Instant
}

// note remembers that units of op were recorded at now and count until ends. It says
// whether there was room to.
func (s *debts) note(op *limit.Op, units int64, now, ends limit.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byKey[op.Key]
	switch {
	case d == nil && units < 0:
		return true // of what was taken on the primary; never a refund there
	case d == nil && !s.room(now):
		return false
	case d == nil:
		// The group is a piece of a request, which should not stay for its sake.
		d = &debt{key: limit.Key{Group: strings.Clone(op.Key.Group), Limit: op.Key.Limit}}
		s.byKey[d.key] = d
	}
	d.of, d.ends = op.Limit, ends
	d.units = max(d.units+units, 0)
	return true
}

// room makes room for one more, if that is possible by dropping what is over, or what
// the primary had no room for. It looks for that once a second at most: a search is as long as the shard.
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
		if d.ends <= now || d.next > now {
			delete(s.byKey, k)
		}
	}
	return len(s.byKey) < s.max
}

// has reports whether d was not forgotten meanwhile.
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

// count returns how many of them the primary may have room for, and how many wait for that.
func (s *debts) count(now limit.Instant) (due, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.byKey {
		if d.due(now) {
			due++
		}
	}
	return due, len(s.byKey) - due
}

// due reports whether the primary may have room for d, or d is over.
func (d *debt) due(now limit.Instant) bool { return d.next <= now || d.ends <= now }

// appendDue adds those to a list that the primary may have room for.
func (s *debts) appendDue(list []*debt, now limit.Instant) []*debt {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.byKey {
		if d.due(now) {
			list = append(list, d)
		}
	}
	return list
}
