package leases

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// inFlightTable has a row for each key under which requests are in flight.
const inFlightTable = "inflight"

// rowsToPut returns the rows of entries that are new, or were put long ago and
// are still used, and for how long the rows are to live.
func (s *tally) rowsToPut(every time.Duration) (rows []backends.Row, life time.Duration, put []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put, s.dirty = s.dirty, nil
	for _, e := range s.byKey {
		if e.put != 0 && e.put <= s.round && (e.used == s.round || e.count > 0) &&
			time.Duration(s.round+1-e.put)*every > e.ttl {
			e.put = s.round + 1
			put = append(put, e)
		}
	}
	for _, e := range put {
		r := backends.Row{Key: e.rowKey(), Value: e.encode()}
		if backends.CheckRow(r.Key, r.Value, time.Second) != nil {
			s.missed = s.round + 1
			continue
		}
		life = max(life, 2*e.ttl+4*every)
		rows = append(rows, r)
	}
	return rows, life, put
}

// requeue has entries put again that could not be put.
func (s *tally) requeue(list []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range list {
		if s.byKey[e.key] == e {
			s.dirty = append(s.dirty, e)
		}
	}
}

// merge adds the keys that other replicas, or an earlier run, have put. A row of
// this process that the store has lost is put again.
func (s *tally) merge(rows []backends.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := make(map[limit.Key]bool, len(rows))
	for _, r := range rows {
		e := decodeEntry(r.Value)
		if e == nil {
			continue
		}
		listed[e.key] = true
		if s.byKey[e.key] == nil {
			e.used, e.put = s.round, s.round+1
			s.add(e)
		}
	}
	for _, e := range s.byKey {
		if !listed[e.key] && e.put != 0 && (e.used == s.round || e.count > 0) {
			e.put = s.round + 1
			s.dirty = append(s.dirty, e)
		}
	}
	if len(rows) >= maxEntries {
		s.missed = s.round + 1
	}
}

func (e *entry) rowKey() string {
	sum := sha256.Sum256(limit.AppendPart(limit.AppendPart(nil, e.key.Group), e.key.Limit))
	return string(sum[:16])
}

// A row's value has these fields, each after its length.
const entryFields = 5

func (e *entry) encode() string {
	parts := [entryFields]string{e.of.domain, e.of.rule, e.key.Group, e.key.Limit,
		strconv.FormatInt(e.ttl.Milliseconds(), 10)}
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(strconv.Itoa(len(part)))
		b.WriteByte(':')
		b.WriteString(part)
	}
	return b.String()
}

// decodeEntry reads a row's value, nil if it is malformed.
func decodeEntry(value string) *entry {
	var f [entryFields]string
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
	return &entry{key: limit.Key{Group: f[2], Limit: f[3]}, of: ruleName{f[0], f[1], f[3] == limit.ReservationPart},
		ttl: time.Duration(ms) * time.Millisecond}
}
