package ratelimit

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// The keys under which requests are in flight, with how many, as the backend
// counted them last: what is published, and where the leases of an owner that
// is gone are to be found. Replicas share the keys in the registry.

const (
	maxPlaces   = backends.MaxRows
	placesTable = "inflight"
)

type ruleName struct{ domain, rule string }

// A place is a key under which requests are or were in flight.
type place struct {
	key   limit.Key
	of    ruleName
	ttl   time.Duration
	count int64
	at    limit.Instant // of count
	used  uint64        // the round in which it was used last
	put   uint64        // the round in which it was put into the table, 0 if it was not
}

type places struct {
	mu     sync.Mutex
	byKey  map[limit.Key]*place
	sums   map[ruleName]int64
	dirty  []*place // to be put into the table
	round  uint64   // counts refreshes
	missed uint64   // the round in which a key was left out last

	refreshed time.Time // when all counts were last read
}

// saw notes how many requests are in flight under a key at some instant.
func (s *places) saw(key limit.Key, domain, rule string, ttl time.Duration, count int64, at limit.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byKey[key]
	if p == nil {
		key.Group = strings.Clone(key.Group)
		if p = s.add(&place{key: key, of: ruleName{strings.Clone(domain), strings.Clone(rule)}, ttl: ttl}); p == nil {
			return
		}
	}
	p.used = s.round
	if at >= p.at {
		s.set(p, count, at)
	}
	if p.put == 0 && len(s.dirty) < maxPlaces {
		p.put = s.round + 1
		s.dirty = append(s.dirty, p)
	}
}

// ended notes how many requests are in flight under a key after an end.
func (s *places) ended(key limit.Key, count int64, at limit.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byKey[key]; p != nil && at >= p.at {
		p.used = s.round
		s.set(p, count, at)
	}
}

func (s *places) set(p *place, count int64, at limit.Instant) {
	s.sums[p.of] += count - p.count
	p.count, p.at = count, at
}

// add takes a place in, or returns nil if there is no room.
func (s *places) add(p *place) *place {
	if s.byKey == nil {
		s.byKey, s.sums = map[limit.Key]*place{}, map[ruleName]int64{}
	}
	if len(s.byKey) >= maxPlaces && !s.makeRoom() {
		s.missed = s.round + 1
		return nil
	}
	s.byKey[p.key] = p
	return p
}

// makeRoom drops a key under which nothing is in flight.
func (s *places) makeRoom() bool {
	const tries = 16
	n := 0
	for _, p := range s.byKey {
		if p.count == 0 {
			s.drop(p)
			return true
		}
		if n++; n == tries {
			break
		}
	}
	return false
}

func (s *places) drop(p *place) {
	s.set(p, 0, p.at)
	delete(s.byKey, p.key)
	p.put = 0
	if s.sums[p.of] == 0 {
		delete(s.sums, p.of)
	}
}

// toPut returns what is new, or was put long ago and is still used, as rows,
// and for how long they are to live.
func (s *places) toPut(every time.Duration) (rows []backends.Row, life time.Duration, put []*place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put, s.dirty = s.dirty, nil
	for _, p := range s.byKey {
		if p.put != 0 && p.put <= s.round && (p.used == s.round || p.count > 0) && time.Duration(s.round+1-p.put)*every > p.ttl {
			p.put = s.round + 1
			put = append(put, p)
		}
	}
	for _, p := range put {
		r := backends.Row{Key: p.rowKey(), Value: p.encode()}
		if backends.CheckRow(r.Key, r.Value, time.Second) != nil {
			s.missed = s.round + 1
			continue
		}
		life = max(life, 2*p.ttl+4*every)
		rows = append(rows, r)
	}
	return rows, life, put
}

// putAgain has places put that could not be.
func (s *places) putAgain(list []*place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range list {
		if s.byKey[p.key] == p {
			s.dirty = append(s.dirty, p)
		}
	}
}

func (p *place) rowKey() string {
	sum := sha256.Sum256(limit.AppendPart(limit.AppendPart(nil, p.key.Group), p.key.Limit))
	return string(sum[:16])
}

const placeFields = 5

func (p *place) encode() string {
	parts := []string{p.of.domain, p.of.rule, p.key.Group, p.key.Limit, strconv.FormatInt(p.ttl.Milliseconds(), 10)}
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(strconv.Itoa(len(part)))
		b.WriteByte(':')
		b.WriteString(part)
	}
	return b.String()
}

// decodePlace reads a row of the table, nil if it is none.
func decodePlace(value string) *place {
	var f [placeFields]string
	for i := range f {
		size, rest, ok := strings.Cut(value, ":")
		n, err := strconv.Atoi(size)
		if !ok || err != nil || n < 0 || n > len(rest) {
			return nil
		}
		f[i], value = rest[:n], rest[n:]
	}
	ms, err := strconv.ParseInt(f[4], 10, 64)
	if err != nil || ms <= 0 || ms > limit.MaxWindow.Milliseconds() {
		return nil
	}
	return &place{key: limit.Key{Group: f[2], Limit: f[3]}, of: ruleName{f[0], f[1]}, ttl: time.Duration(ms) * time.Millisecond}
}

// merge takes in the keys that other replicas, or an earlier run, put there. A
// row of ours that the store has lost is put again.
func (s *places) merge(rows []backends.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := make(map[limit.Key]bool, len(rows))
	for _, r := range rows {
		p := decodePlace(r.Value)
		if p == nil {
			continue
		}
		listed[p.key] = true
		if s.byKey[p.key] == nil {
			p.used, p.put = s.round, s.round+1
			s.add(p)
		}
	}
	for _, p := range s.byKey {
		if !listed[p.key] && p.put != 0 && (p.used == s.round || p.count > 0) {
			p.put = s.round + 1
			s.dirty = append(s.dirty, p)
		}
	}
	if len(rows) >= maxPlaces {
		s.missed = s.round + 1
	}
}

// An asked is a place that the backend is asked about.
type asked struct {
	*place
	asOf limit.Instant // of the count that is known
}

// all returns every place, and an op about each.
func (s *places) all(op limit.Op) (list []asked, ops []limit.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byKey {
		op.Key, op.Limit = p.key, lifeOf(p.ttl)
		list, ops = append(list, asked{p, p.at}), append(ops, op)
	}
	return list, ops
}

// counted takes over what the backend says is in flight, unless a later answer
// came meanwhile. The backend's clock may have been set back.
func (s *places) counted(a asked, v *limit.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := a.place; s.byKey[p.key] == p && (p.at == a.asOf || v.At >= p.at) {
		s.set(p, inFlight(&v.Outcomes[0]), v.At)
	}
}

// reaped takes over what is left after an owner's leases were ended, and
// returns how many those were.
func (s *places) reaped(p *place, v *limit.Verdict) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := inFlight(&v.Outcomes[0])
	n := max(0, p.count-left)
	if s.byKey[p.key] == p {
		s.set(p, left, v.At)
	}
	return n
}

func (s *places) inFlight(p *place) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.count
}

// inFlight is how many leases there are after an op with a limit of lifeOf.
// Outcome.InFlight may count refusals that are remembered.
func inFlight(out *limit.Outcome) int64 { return limit.MaxInFlight - out.Remaining }

// next begins another round, and drops what has not been used for long enough
// to have expired.
func (s *places) next(every time.Duration, complete bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round++
	if !complete {
		return
	}
	s.refreshed = now
	for _, p := range s.byKey {
		if p.count == 0 && time.Duration(s.round-p.used)*every > 2*p.ttl {
			s.drop(p)
		}
	}
}

// An InFlight is how many requests are in flight under a rule's keys.
type InFlight struct {
	Domain, Rule string
	Count        int64
}

// list returns the sums by rule, and whether they are complete: all keys had
// room, and were asked about within the last three rounds.
func (s *places) list(now time.Time, every time.Duration) (list []InFlight, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list = make([]InFlight, 0, len(s.sums))
	for of, n := range s.sums {
		list = append(list, InFlight{of.domain, of.rule, n})
	}
	slices.SortFunc(list, func(a, b InFlight) int { return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule)) })
	full := s.missed != 0 && s.round < s.missed+2
	return list, !full && !s.refreshed.IsZero() && now.Sub(s.refreshed) <= 3*every
}

// leftOut notes that the table had no room for a key.
func (s *places) leftOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed = s.round + 1
}

func (s *places) keys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}
