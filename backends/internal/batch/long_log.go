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

// begins reports whether a window may begin among the units of a part that does not end
// before all windows.
func (u *logUse) begins(l *longLog, j int) bool {
	return j == 0 || l.parts[j-1].last <= u.high
}

// waits reports whether one of the ops may have to wait for one of so many units, where after are
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
