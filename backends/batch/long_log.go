package batch

import (
	"encoding/binary"
	"slices"

	"github.com/headgate-rls/headgate/limit"
)

// A log may be too long to be written with each admission. A store may then keep its
// older records in parts that are written once and deleted once. What it keeps under the
// key is the State that [Change.Split] returns: it has one record for each part, with the
// part's last instant and what of it still counts, then the newest records themselves.
// M says how many stand for parts. A reader of such a State without the parts has
// all units for at least as long as they count.
//
// Of the parts a decision needs only those whose units it tells apart: [Batch.Missing]
// lists them, so that the rest need not be read.

// A longLog is what a Batch knows of the parts of a log.
type longLog struct {
	parts []logPart
	tail  []limit.Record
}

// A logPart is a part: all of its records, or nil as long as it has not been put.
type logPart struct {
	last    limit.Instant
	units   int64 // that still count: the newest of the part
	records []limit.Record
}

// Put says what the store has under Keys()[i]. A key of which it has nothing
// needs no Put.
func (b *Batch) Put(i int, s limit.State) {
	if parts := min(s.M, int64(len(s.Log))); parts > 0 { // no other algorithm has both
		long := &longLog{parts: make([]logPart, parts), tail: s.Log[parts:]}
		for j, r := range s.Log[:parts] {
			long.parts[j] = logPart{last: r.At, units: r.N}
		}
		b.kept[i].long = long
		b.long++
		s.M = 0
	}
	b.kept[i].state = s
}

// PutPart says what the store has of a part, after Put. It reports whether the part is
// one that the log needs or does not have; a part that does not hold what the log says
// is damaged.
func (b *Batch) PutPart(i int, part limit.State) (ok bool) {
	long := b.kept[i].long
	if long == nil {
		return true // left behind by a version that knew no parts
	}
	j, found := slices.BinarySearchFunc(long.parts, part.At,
		func(p logPart, at limit.Instant) int { return int(p.last - at) })
	if !found {
		return true
	}
	p := &long.parts[j]
	if n := len(part.Log); n == 0 || part.Log[n-1].At != part.At || part.N < p.units {
		return false
	}
	records, old := part.Log, part.N-p.units
	for ; old > 0 && old >= records[0].N; records = records[1:] {
		old -= records[0].N
	}
	p.records = records
	return old == 0
}

// assemble makes the log that is decided on.
func (l *longLog) assemble() []limit.Record {
	log := make([]limit.Record, 0, len(l.parts)+len(l.tail)+256)
	for _, p := range l.parts {
		if p.records != nil {
			log = append(log, p.records...)
		} else {
			log = append(log, limit.Record{At: p.last, N: p.units})
		}
	}
	return append(log, l.tail...)
}

// Missing lists, by the position of their key in Keys, the parts that have not been put
// and that Decide at this instant needs: by their last instants, in order.
func (b *Batch) Missing(now limit.Instant) (missing map[int][]limit.Instant) {
	if b.long == 0 {
		return nil
	}
	use := map[int]*logUse{}
	for _, req := range b.reqs {
		at := req.At
		if at == 0 {
			at = now
		}
		for i := range req.Ops {
			k := b.known[req.Ops[i].Key]
			if b.kept[k].long == nil {
				continue
			}
			if use[k] == nil {
				use[k] = newLogUse(b.kept[k].state.At)
			}
			use[k].add(&req.Ops[i], min(max(at, 0), limit.MaxInstant))
		}
	}
	for k, u := range use {
		if needs := u.needs(b.kept[k].long); len(needs) > 0 {
			if missing == nil {
				missing = map[int][]limit.Instant{}
			}
			missing[k] = needs
		}
	}
	return missing
}

// A logUse is what the ops of a batch may do with one log. It bounds which units
// their decisions can depend on, whatever becomes of each.
type logUse struct {
	first, last limit.Instant // of the ops and the state
	low, high   limit.Instant // between which a window may begin
	windows     [2]int64
	taken, back int64 // at most
	ops         []*limit.Op
	mostUnits   int64 // the largest capacity
	least       int64 // the smallest one of those with debt, -1 for none
}

func newLogUse(at limit.Instant) *logUse {
	return &logUse{first: limit.MaxInstant, last: min(at, limit.MaxInstant), least: -1}
}

func (u *logUse) add(op *limit.Op, at limit.Instant) {
	l, window := op.Limit, op.Limit.Window().Microseconds()
	if len(u.ops) == 0 {
		u.windows = [2]int64{window, window}
	}
	u.ops = append(u.ops, op)
	u.first, u.last = min(u.first, at), max(u.last, at)
	u.windows = [2]int64{min(u.windows[0], window), max(u.windows[1], window)}
	u.low, u.high = u.first-limit.Instant(u.windows[1]), u.last-limit.Instant(u.windows[0])
	u.taken += min(max(op.Cost, 0), limit.MaxUnits)
	u.back += max(-max(op.Cost, -limit.MaxUnits), 0)
	if op.AsOf != 0 {
		u.back += limit.MaxUnits // any of its records may be given back
	}
	u.mostUnits = max(u.mostUnits, l.Capacity())
	if l.Below() > 0 && (u.least < 0 || l.Capacity() < u.least) {
		u.least = l.Capacity()
	}
}

// needs lists the parts of l that are not there and in which the ops may tell units
// apart.
func (u *logUse) needs(l *longLog) (list []limit.Instant) {
	most, least := u.live(l)
	all := u.least >= 0 && (most+u.taken > u.least || u.back > 0 && u.last > u.first)
	after := int64(0) // units that are newer than the part
	for _, r := range l.tail {
		after += r.N
	}
	taken := min(u.taken, max(u.mostUnits-least, 0)+u.back)
	for j := len(l.parts) - 1; j >= 0; j-- {
		p := &l.parts[j]
		if p.records == nil && p.last > u.low && // it may count at all
			(all || u.begins(l, j) || u.back > 0 && after <= u.back || u.waits(after, p.units, taken)) {
			list = append(list, p.last)
		}
		after += p.units
	}
	slices.Reverse(list)
	return list
}

// live returns how many units count at most, where the earliest window begins, and at
// least, where the latest one does.
func (u *logUse) live(l *longLog) (most, least int64) {
	count := func(records []limit.Record) {
		for _, r := range records {
			if r.At > u.low {
				most += r.N
			}
			if r.At > u.high {
				least += r.N
			}
		}
	}
	before := limit.Instant(-1)
	for _, p := range l.parts {
		switch {
		case p.records != nil:
			count(p.records)
		case p.last > u.low:
			most += p.units
			if before > u.high {
				least += p.units
			}
		}
		before = p.last
	}
	count(l.tail)
	return most, least
}

// begins says whether a window may begin among the units of a part that does not end
// before all windows.
func (u *logUse) begins(l *longLog, j int) bool {
	return j == 0 || l.parts[j-1].last <= u.high
}

// waits says whether one of the ops may have to wait for one of so many units, where after are
// newer. It waits for the end of that unit which leaves no more than it has room beside:
// capacity less cost of them are newer.
func (u *logUse) waits(after, units, taken int64) bool {
	for _, op := range u.ops {
		n := max(op.Cost, 1)
		if n > op.Limit.Capacity() {
			continue
		}
		newer := op.Limit.Capacity() - n
		if newer-taken < after+units && after <= newer+u.back {
			return true
		}
	}
	return false
}

// Split divides the log of a changed state, if it has any, for a store that keeps long logs in
// parts: it returns the state to keep under the key, the parts to add, each under the
// instant of its state, and the instants of those to delete. A log of up to so many
// records that has no parts yet gets none. The form of a part has no more than size bytes.
func (c *Change) Split(whole, size int) (s limit.State, add []limit.State, gone []limit.Instant) {
	s = *c.State
	var log []limit.Record
	rest := s.Log
	if c.long != nil {
		log, rest, gone = c.long.left(rest)
	}
	if len(log) == 0 && len(rest) <= whole {
		return s, nil, gone
	}
	s.M = int64(len(log))
	rest = merged(rest)
	for s.M > 0 || len(rest) > whole {
		n, more := firstBytes(rest, size-limit.MaxFiguresSize)
		if !more {
			break
		}
		part := limit.State{Log: rest[:n], At: rest[n-1].At}
		for _, r := range part.Log {
			part.N += r.N
		}
		add, rest = append(add, part), rest[n:]
		log, s.M = append(log, limit.Record{At: part.At, N: part.N}), s.M+1
	}
	s.Log = append(log, rest...)
	return s, add, gone
}

// left separates the parts that a decided log still has, as records that stand for them,
// from what is newer, and from the parts that it has no more.
func (l *longLog) left(log []limit.Record) (parts, rest []limit.Record, gone []limit.Instant) {
	changed := false // a part, and with it all that are newer
	for _, p := range l.parts {
		n, units := 0, int64(0)
		if !changed {
			n, units = p.leads(log, len(parts) == 0)
		}
		if n == 0 {
			gone = append(gone, p.last)
			changed = changed || len(parts) > 0
			continue
		}
		parts, log = append(parts, limit.Record{At: p.last, N: units}), log[n:]
	}
	return parts, log, gone
}

// leads returns how many records at the beginning of log are p's, and their units; 0 if
// that is not all of p. Of the oldest part some may have ended.
func (p *logPart) leads(log []limit.Record, oldest bool) (n int, units int64) {
	records := p.records
	if records == nil {
		records = []limit.Record{{At: p.last, N: p.units}}
	}
	if oldest && len(log) > 0 {
		i := slices.IndexFunc(records, func(r limit.Record) bool { return r.At >= log[0].At })
		records = records[max(i, 0):]
	}
	if len(log) < len(records) || !slices.Equal(log[:len(records)], records) {
		return 0, 0
	}
	for _, r := range records {
		units += r.N
	}
	return len(records), units
}

// merged returns log with one record for each instant.
func merged(log []limit.Record) []limit.Record {
	kept := make([]limit.Record, 0, len(log))
	for _, r := range log {
		if last := len(kept) - 1; last >= 0 && kept[last].At == r.At {
			kept[last].N += r.N
		} else {
			kept = append(kept, r)
		}
	}
	return kept
}

// firstBytes returns how many of the oldest records take up to so many bytes, and
// whether the others take as many.
func firstBytes(log []limit.Record, size int) (n int, more bool) {
	var number [binary.MaxVarintLen64]byte
	bytes, last := 0, limit.Instant(0)
	for i, r := range log {
		bytes += binary.PutUvarint(number[:], uint64(r.At-last)) + binary.PutUvarint(number[:], uint64(r.N))
		last = r.At
		if bytes <= size {
			n = i + 1
		}
	}
	return n, bytes >= 2*size && n > 0
}
