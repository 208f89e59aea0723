package limit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The binary form of a [State], for stores that keep bytes, is a byte with the
// version and then unsigned varints:
//
//	At, N, M
//	number of records; of each: At less the one before's, N
//	number of leases, ascending; of each: score less the one before's, holder
//	number of remembered refusals; of each: At less the one before's, N
//	number of remembered ends, ascending; of each: score less the one before's, holder
//
// A holder is its length and its bytes. After the last list of which there is
// anything the form ends. A later form has a larger version, which a reader that
// does not know it reports as [ErrLater].
const stateVersion = 1

// ErrLater is of anything that a later version of headgate has written in a form that this one cannot read. Each such
// form has a mark that says so: see docs/formats.md.
var ErrLater = errors.New("written by a later version of headgate, in a format that this version cannot read")

// Bounds of the binary form, in bytes. A state of FixedWindow, SlidingWindow or
// TokenBucket has no more than MaxFiguresSize. One of SlidingLog has
// MaxRecordSize more for each record, of which there is at most one per unit of
// its limit. One of Concurrency has MaxLeaseSize more for each lease or
// remembered end (at most 1000), and MaxRecordSize for each step of Hold in
// which something was refused.
const (
	MaxFiguresSize = 1 + 3*maxNumberSize + 4*3 // 4 counts
	MaxRecordSize  = 2 * maxNumberSize
	MaxLeaseSize   = maxNumberSize + 1 + MaxHolderLen

	maxNumberSize = 8 // of a varint up to 2^53
)

// maxScore is that of the last lease to expire.
const maxScore = ((maxExact+int64(MaxWindow/1000))/1000+1)*8 + maxAgain

var errState = errors.New("not a state")

// AppendBinary implements [encoding.BinaryAppender]. It never fails for a state
// that was made by Step or Decide.
func (s State) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, stateVersion)
	for _, n := range [...]int64{int64(s.At), s.N, s.M} {
		b = binary.AppendUvarint(b, uint64(min(max(n, 0), maxExact)))
	}
	lists := 0
	switch set := s.Leases; {
	case set != nil && len(set.ended) > 0:
		lists = 4
	case set != nil && len(set.refused) > 0:
		lists = 3
	case set != nil && len(set.scores) > 0:
		lists = 2
	case len(s.Log) > 0:
		lists = 1
	}
	if lists > 0 {
		b = appendRecords(b, s.Log)
	}
	if lists > 1 {
		b = appendHolders(b, s.Leases.live())
	}
	if lists > 2 {
		b = appendRecords(b, s.Leases.refused)
	}
	if lists > 3 {
		b = appendHolders(b, s.Leases.ended)
	}
	return b, nil
}

// live returns the leases in queue.
func (s *LeaseSet) live() []queued {
	if s.stale == 0 {
		return s.queue
	}
	var current []queued
	for _, q := range s.queue {
		if s.current(q) {
			current = append(current, q)
		}
	}
	return current
}

func appendRecords(b []byte, list []Record) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	last := Instant(0)
	for _, r := range list {
		b = binary.AppendUvarint(b, uint64(r.At-last))
		b = binary.AppendUvarint(b, uint64(r.N))
		last = r.At
	}
	return b
}

func appendHolders(b []byte, list []queued) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	last := int64(0)
	for _, q := range list {
		b = binary.AppendUvarint(b, uint64(q.score-last))
		b = binary.AppendUvarint(b, uint64(len(q.holder)))
		b = append(b, q.holder...)
		last = q.score
	}
	return b
}

// UnmarshalBinary implements [encoding.BinaryUnmarshaler]. Whatever data is, the
// result is a state or an error, and takes memory in proportion to len(data). It
// keeps no part of data. After an error s is unchanged.
func (s *State) UnmarshalBinary(data []byte) error {
	switch {
	case len(data) > 0 && data[0] > stateVersion:
		return fmt.Errorf("%w: a state of version %d, and not of %d", ErrLater, data[0], stateVersion)
	case len(data) == 0 || data[0] < stateVersion:
		return fmt.Errorf("%w of version %d", errState, stateVersion)
	}
	d := decoder{data: data[1:]}
	read := State{At: Instant(d.number(maxExact)), N: d.number(maxExact), M: d.number(maxExact)}
	if d.more() {
		read.Log = d.records()
		read.checkSum(&d)
	}
	if d.more() {
		read.Leases = d.leases()
	}
	if d.bad || len(d.data) > 0 {
		return fmt.Errorf("%w: damaged or cut off, %d bytes", errState, len(data))
	}
	*s = read
	return nil
}

// checkSum reports a log whose sum is not that of its records.
func (s *State) checkSum(d *decoder) {
	left := s.N
	for _, r := range s.Log {
		left -= min(r.N, maxExact)
		d.bad = d.bad || left < 0
	}
	d.bad = d.bad || len(s.Log) > 0 && left != 0
}

// leases reads a set, nil if it is empty.
func (d *decoder) leases() *LeaseSet {
	s := (*LeaseSet)(nil).made()
	s.queue = d.holders(MaxInFlight, maxScore)
	for _, q := range s.queue {
		s.scores[q.holder] = q.score
		s.reserved += Amount(q.holder)
	}
	d.bad = d.bad || len(s.scores) != len(s.queue)
	if d.more() {
		s.refused = d.records()
	}
	if d.more() {
		s.ended = d.holders(maxEnded, maxScore/8)
	}
	if len(s.queue)+len(s.refused)+len(s.ended) == 0 {
		return nil
	}
	return s
}

// A decoder reads numbers from data until it finds something wrong.
type decoder struct {
	data []byte
	bad  bool
}

func (d *decoder) more() bool { return !d.bad && len(d.data) > 0 }

// number reads one from 0 to most.
func (d *decoder) number(most int64) int64 {
	n, size := binary.Uvarint(d.data)
	if size <= 0 || n > math.MaxInt64 || int64(n) > most {
		d.bad, d.data = true, nil
		return 0
	}
	d.data = d.data[size:]
	return int64(n)
}

// count reads how long a list is whose entries have at least two bytes.
func (d *decoder) count(most int) int { return int(d.number(min(int64(most), int64(len(d.data)/2)))) }

// records reads records in the order of their instants, none of them empty.
func (d *decoder) records() []Record {
	n := d.count(math.MaxInt)
	if n == 0 {
		return nil
	}
	list := make([]Record, n)
	last := Instant(0)
	for i := range list {
		last += Instant(d.number(int64(maxRecordAt - last)))
		list[i] = Record{At: last, N: d.number(maxExact)}
		d.bad = d.bad || list[i].N == 0
	}
	return list
}

// maxRecordAt is when the last refusal is forgotten.
const maxRecordAt = Instant(maxExact + int64(MaxWindow/1000)*2)

// holders reads up to most entries in ascending order, each there once.
func (d *decoder) holders(most int, maxScore int64) []queued {
	n := d.count(most)
	if n == 0 {
		return nil
	}
	list := make([]queued, 0, n)
	last := queued{}
	for range n {
		q := queued{score: last.score + d.number(maxScore-last.score)}
		if size := int(d.number(MaxHolderLen)); size <= len(d.data) {
			q.holder, d.data = string(d.data[:size]), d.data[size:]
		} else {
			d.bad = true
		}
		if d.bad = d.bad || !last.less(q); d.bad {
			return nil
		}
		list, last = append(list, q), q
	}
	return list
}
