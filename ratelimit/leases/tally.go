package leases

import (
	"cmp"
	"context"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// maxEntries bounds the keys of a tally.
const maxEntries = backends.MaxRows

// A ruleName is the labels of a rule in metrics.
type ruleName struct {
	domain, rule string
	reserves     bool // its reservations, and not its requests in flight
}

// An entry is a key under which requests are or were in flight.
type entry struct {
	key   limit.Key
	of    ruleName
	ttl   time.Duration
	count int64
	at    limit.Instant // of count
	used  uint64        // the round in which it was used last
	put   uint64        // the round in which it was put into the registry, 0 if it was not
}

// A tally has the keys under which requests are in flight, with how many, as
// the backend counted them last. Its sums are published, and its keys say where
// the leases of an owner that is gone may be. Replicas share the keys through the
// registry (tally_rows.go).
type tally struct {
	mu     sync.Mutex
	byKey  map[limit.Key]*entry
	sums   map[ruleName]int64
	dirty  []*entry // to be put into the registry
	round  uint64   // counts refreshes
	missed uint64   // the round in which a key was left out last

	refreshed time.Time // when all counts were last read
}

// observe notes how many requests are in flight under a key at an instant.
func (s *tally) observe(key limit.Key, domain, rule string, ttl time.Duration, count int64, at limit.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[key]
	if e == nil {
		key.Group = strings.Clone(key.Group)
		if e = s.add(&entry{key: key, ttl: ttl,
			of: ruleName{strings.Clone(domain), strings.Clone(rule), key.Limit == limit.ReservationPart}}); e == nil {
			return
		}
	}
	e.used = s.round
	if at >= e.at {
		s.set(e, count, at)
	}
	if e.put == 0 && len(s.dirty) < maxEntries {
		e.put = s.round + 1
		s.dirty = append(s.dirty, e)
	}
}

// observeEnd notes how many requests are in flight under a key after an end.
func (s *tally) observeEnd(key limit.Key, count int64, at limit.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byKey[key]; e != nil && at >= e.at {
		e.used = s.round
		s.set(e, count, at)
	}
}

func (s *tally) set(e *entry, count int64, at limit.Instant) {
	s.sums[e.of] += count - e.count
	e.count, e.at = count, at
}

// add adds an entry, or returns nil if there is no room.
func (s *tally) add(e *entry) *entry {
	if s.byKey == nil {
		s.byKey, s.sums = map[limit.Key]*entry{}, map[ruleName]int64{}
	}
	if len(s.byKey) >= maxEntries && !s.makeRoom() {
		s.missed = s.round + 1
		return nil
	}
	s.byKey[e.key] = e
	return e
}

// makeRoom removes a key under which nothing is in flight.
func (s *tally) makeRoom() bool {
	const tries = 16
	n := 0
	for _, e := range s.byKey {
		if e.count == 0 {
			s.remove(e)
			return true
		}
		if n++; n == tries {
			break
		}
	}
	return false
}

func (s *tally) remove(e *entry) {
	s.set(e, 0, e.at)
	delete(s.byKey, e.key)
	e.put = 0
	if s.sums[e.of] == 0 {
		delete(s.sums, e.of)
	}
}

// noteOverflow notes that the registry had no room for a key.
func (s *tally) noteOverflow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed = s.round + 1
}

// reserves reports whether the leases under the key are reservations.
func (e *entry) reserves() bool { return e.key.Limit == limit.ReservationPart }

// A question is an entry that the backend is asked about.
type question struct {
	*entry
	asOf limit.Instant // of the known count
}

// questions returns every entry.
func (s *tally) questions() (list []question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.byKey {
		list = append(list, question{e, e.at})
	}
	return list
}

// takeAnswer takes over what the backend says is in flight, unless a later
// answer has come meanwhile. The backend's clock may have been set back.
func (s *tally) takeAnswer(q question, v *limit.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := q.entry; s.byKey[e.key] == e && (e.at == q.asOf || v.At >= e.at) {
		s.set(e, inFlightAfter(&v.Outcomes[0]), v.At)
	}
}

// takeReaped takes over what is left after the leases of an owner were ended,
// and returns how many leases were ended.
func (s *tally) takeReaped(e *entry, v *limit.Verdict) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := inFlightAfter(&v.Outcomes[0])
	n := max(0, e.count-left)
	if s.byKey[e.key] == e {
		s.set(e, left, v.At)
	}
	return n
}

func (s *tally) countOf(e *entry) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.count
}

// nextRound begins another round. If all counts were read in the last one, it
// removes keys that were not used for so long that their leases have expired.
func (s *tally) nextRound(every time.Duration, complete bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round++
	if !complete {
		return
	}
	s.refreshed = now
	for _, e := range s.byKey {
		if e.count == 0 && time.Duration(s.round-e.used)*every > 2*e.ttl {
			s.remove(e)
		}
	}
}

// An InFlight is how many requests are in flight under a rule, or how many
// reservations are open.
type InFlight struct {
	Domain, Rule string
	Reserves     bool
	Count        int64
}

// byRule returns the sums by rule, and whether they are complete: all keys had
// room, and all counts were read within the last three rounds.
func (s *tally) byRule(now time.Time, every time.Duration) (list []InFlight, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list = make([]InFlight, 0, len(s.sums))
	for of, n := range s.sums {
		list = append(list, InFlight{of.domain, of.rule, of.reserves, n})
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := &list[i], &list[j]
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule)) < 0
	})
	full := s.missed != 0 && s.round < s.missed+2
	return list, !full && !s.refreshed.IsZero() && now.Sub(s.refreshed) <= 3*every
}

func (s *tally) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}

// refreshCounts reads under which keys requests are in flight, and how many.
func (t *Tracker) refreshCounts(ctx context.Context) (err error) {
	defer func() { t.tally.nextRound(t.refreshEvery(), err == nil, t.wall()) }()
	if t.longestLife() == 0 && t.tally.size() == 0 {
		return nil // no rule grants leases
	}
	if err = t.putKeys(ctx); err != nil {
		return err
	}
	if t.conf.Registry != nil {
		rows, err := t.conf.Registry.List(ctx, inFlightTable)
		if err != nil {
			return err
		}
		t.tally.merge(rows)
	}
	list := t.tally.questions()
	for try := 0; len(list) > 0 && try < maxEndings && err == nil; try++ {
		asks := make([][]limit.Op, len(list))
		for i := range list {
			asks[i] = t.question(list[i].entry)
		}
		var again []question // a question ends at most limit.OwnerSlice reservations
		err = t.takeInBatches(ctx, asks, func(i int, v *limit.Verdict) {
			q := list[i]
			if v.Outcomes[0].Held {
				t.noteLost(q.entry, v, t.tally.countOf(q.entry)-inFlightAfter(&v.Outcomes[0]))
				again = append(again, q)
			}
			t.tally.takeAnswer(q, v)
		})
		list = again
	}
	return err
}

// putKeys puts keys under which requests are in flight into the registry.
func (t *Tracker) putKeys(ctx context.Context) error {
	rows, life, put := t.tally.rowsToPut(t.refreshEvery())
	if len(rows) == 0 || t.conf.Registry == nil {
		return nil
	}
	left, err := t.conf.Registry.Put(ctx, inFlightTable, rows, life)
	if err != nil {
		t.tally.requeue(put)
	}
	if left > 0 {
		t.tally.noteOverflow()
	}
	return err
}
