package limit

import (
	"slices"
	"sort"
	"strings"
	"time"
)

// EndedLife is how long a lease that was ended before it was ever granted is
// remembered: its acquire may have been overtaken, and must not be granted
// when it arrives.
const EndedLife = time.Minute

const (
	maxEnded = 1000 // remembered ends under one key; the earliest go first
	maxAgain = 7    // repeated acquires that one lease counts
)

// A LeaseSet is the state of a Concurrency limit: the leases under one key,
// the refusals that are remembered, and the ends that came before their
// acquire. It changes in place. The zero LeaseSet is not used: see [State].
//
// A lease is a score: the millisecond at which it expires, times 8, plus how often
// its acquire was repeated. It is what a store with sorted sets keeps.
type LeaseSet struct {
	scores map[string]int64 // by holder
	// queue has every lease, ascending; an entry whose score is not the
	// holder's any more is stale. The first and the last are not.
	queue    []queued
	stale    int      // an upper bound of the stale entries in queue
	reserved int64    // the amounts of all leases: see settle.go
	refused  []Record // At is when they are forgotten; ascending
	ended    []queued // ends without a lease; score is the millisecond they are forgotten at

	changed bool // since unchanged; what expires is no change
	journal journal
}

type queued struct {
	score  int64
	holder string
}

// A journal has what must be done to take a request's changes back.
type journal struct {
	open    bool
	moved   bool     // by LeaseSet.moveTo
	changed bool     // LeaseSet.changed, earlier
	scores  []queued // earlier scores, 0 for none; oldest first
	refused []Record
	ended   []queued
}

func (q queued) less(other queued) bool {
	return q.score < other.score || q.score == other.score && q.holder < other.holder
}

// expiry returns the instant at which a lease with this score expires.
func expiry(score int64) Instant { return Instant(score / 8 * 1000) }

// scoreAt returns the score of a lease that expires at or, for want of finer
// steps than a millisecond, right after at.
func scoreAt(at Instant, again int64) int64 { return ceilDiv(int64(at), 1000)*8 + again }

// get returns the score of holder's lease if it is live.
func (s *LeaseSet) get(holder string, now Instant) (int64, bool) {
	if s == nil {
		return 0, false
	}
	score, ok := s.scores[holder]
	return score, ok && expiry(score) > now
}

// set changes the score of holder's lease from old to score; 0 ends the lease.
func (s *LeaseSet) set(holder string, old, score int64) {
	if s.journal.open {
		s.journal.scores = append(s.journal.scores, queued{old, holder})
	}
	s.put(holder, old, score)
}

func (s *LeaseSet) put(holder string, old, score int64) {
	if old == score {
		return
	}
	s.changed = true
	if old != 0 {
		s.stale++
	}
	if old == 0 {
		s.reserved += Amount(holder)
	}
	if score != 0 {
		s.scores[holder] = score
		s.enqueue(queued{score, holder})
	} else {
		s.remove(holder)
	}
	if n := len(s.queue); n > 0 && old != 0 && (old == s.queue[0].score || old == s.queue[n-1].score) {
		s.trim()
	}
}

func (s *LeaseSet) remove(holder string) {
	s.reserved -= Amount(holder)
	delete(s.scores, holder)
}

// reservedAt returns how many units the live leases reserve.
func (s *LeaseSet) reservedAt(now Instant) int64 {
	if s == nil {
		return 0
	}
	units := s.reserved
	for _, q := range s.queue {
		if expiry(q.score) > now {
			break
		}
		if s.current(q) {
			units -= Amount(q.holder)
		}
	}
	return units
}

func (s *LeaseSet) enqueue(q queued) {
	at := len(s.queue)
	if at > 0 && !s.queue[at-1].less(q) {
		at = sort.Search(len(s.queue), func(i int) bool { return !s.queue[i].less(q) })
		if s.queue[at] == q { // was stale, and is not any more
			s.stale--
			return
		}
	}
	s.queue = slices.Insert(s.queue, at, q)
}

// trim drops stale entries from both ends of queue, so that the leases that
// expire first and last are at hand however long it is.
func (s *LeaseSet) trim() {
	n := len(s.queue)
	for n > 0 && !s.current(s.queue[n-1]) {
		n--
		s.stale--
	}
	at := 0
	for at < n && !s.current(s.queue[at]) {
		at++
		s.stale--
	}
	clear(s.queue[n:])
	clear(s.queue[:at])
	s.queue = s.queue[at:n]
}

func (s *LeaseSet) current(q queued) bool { return s.scores[q.holder] == q.score }

// first returns the index in queue of the first lease that is live at now, or
// len(queue), and how many leases come before it.
func (s *LeaseSet) first(now Instant) (at, expired int) {
	for at < len(s.queue) && expiry(s.queue[at].score) <= now {
		if s.current(s.queue[at]) {
			expired++
		}
		at++
	}
	return at, expired
}

// InFlight returns how many leases are live.
func (s *LeaseSet) InFlight(now Instant) int64 {
	if s == nil {
		return 0
	}
	_, expired := s.first(now)
	return int64(len(s.scores) - expired)
}

// nth returns the live lease that expires as number n, from 0; the zero value if
// there are fewer.
func (s *LeaseSet) nth(now Instant, n int64) queued {
	at, _ := s.first(now)
	for _, q := range s.queue[at:] {
		if !s.current(q) {
			continue
		}
		if n == 0 {
			return q
		}
		n--
	}
	return queued{}
}

// latest returns when the last of the leases expires, or 0 if none is live.
func (s *LeaseSet) latest(now Instant) Instant {
	if s == nil {
		return 0
	}
	if n := len(s.queue); n > 0 {
		if at := expiry(s.queue[n-1].score); at > now {
			return at
		}
	}
	return 0
}

// tidy drops what has expired, and stale entries when they are many.
func (s *LeaseSet) tidy(now Instant) {
	if at, _ := s.first(now); at > 0 {
		for _, q := range s.queue[:at] {
			if s.current(q) {
				s.remove(q.holder)
			} else {
				s.stale--
			}
		}
		clear(s.queue[:at])
		s.queue = s.queue[at:]
		s.trim()
	}
	if s.stale > len(s.scores)+16 {
		s.queue = slices.DeleteFunc(s.queue, func(q queued) bool { return !s.current(q) })
		s.stale = 0
	}
	for len(s.refused) > 0 && s.refused[0].At <= now {
		s.refused = s.refused[1:]
	}
	s.ended = slices.DeleteFunc(s.ended, func(q queued) bool { return Instant(q.score*1000) <= now })
}

// remembered returns how many refusals are remembered.
func (s *LeaseSet) remembered(now Instant) (n int64) {
	if s == nil {
		return 0
	}
	for _, r := range s.refused {
		if r.At > now {
			n += r.N
		}
	}
	return n
}

// remember counts the refusal of op for its limit's Hold, and reports whether
// there was anything to remember.
func (s *LeaseSet) remember(op *Op, now Instant) bool {
	if op.Limit.hold == 0 || s.wasEnded(op.Holder, now) {
		return false
	}
	s.moveRefused(now, op.Limit)
	s.addRefused(now, op.Limit, 1)
	return true
}

// addRefused adds n refusals to those that are remembered.
func (s *LeaseSet) addRefused(now Instant, l *Limit, n int64) {
	s.changed = true
	until := Instant(ceilDiv(int64(now)+l.hold, l.holdStep) * l.holdStep)
	at := sort.Search(len(s.refused), func(i int) bool { return s.refused[i].At >= until })
	if at < len(s.refused) && s.refused[at].At == until {
		s.refused[at].N += n
	} else {
		s.refused = slices.Insert(s.refused, at, Record{At: until, N: n})
	}
}

// forgive drops up to n remembered refusals and returns how many.
func (s *LeaseSet) forgive(now Instant, n int64) (dropped int64) {
	for i := range s.refused {
		if r := &s.refused[i]; r.At > now && dropped < n {
			k := min(r.N, n-dropped)
			r.N -= k
			dropped += k
		}
	}
	s.refused = slices.DeleteFunc(s.refused, func(r Record) bool { return r.N == 0 })
	s.changed = s.changed || dropped > 0
	return dropped
}

// wasEnded reports whether holder's lease was ended before it was granted.
func (s *LeaseSet) wasEnded(holder string, now Instant) bool {
	if s == nil {
		return false
	}
	return slices.ContainsFunc(s.ended, func(q queued) bool {
		return q.holder == holder && Instant(q.score*1000) > now
	})
}

// end remembers that holder's lease has ended, although the state has no such lease.
func (s *LeaseSet) end(holder string, now Instant) {
	s.changed = true
	s.ended = slices.DeleteFunc(s.ended, func(q queued) bool { return q.holder == holder })
	q := queued{ceilDiv(int64(now.Add(EndedLife)), 1000), strings.Clone(holder)}
	at := sort.Search(len(s.ended), func(i int) bool { return !s.ended[i].less(q) })
	s.ended = slices.Insert(s.ended, at, q)
	if len(s.ended) > maxEnded { // those of a clock that has stepped back go first
		s.ended = slices.DeleteFunc(s.ended, func(q queued) bool { return Instant(q.score*1000) > now.Add(2*EndedLife) })
	}
	if len(s.ended) > maxEnded {
		s.ended = slices.Delete(s.ended, 0, 1)
	}
}

// begin starts to note changes, unless that is done already.
func (s *LeaseSet) begin() {
	if j := &s.journal; !j.open {
		j.open, j.changed, j.scores = true, s.changed, j.scores[:0]
		j.refused = append(j.refused[:0], s.refused...)
		j.ended = append(j.ended[:0], s.ended...)
	}
}

// rollback takes back what has been done since begin.
func (s *LeaseSet) rollback() {
	if s == nil || !s.journal.open {
		return
	}
	j := &s.journal
	j.open = false
	for i := len(j.scores) - 1; i >= 0; i-- {
		q := j.scores[i]
		s.put(q.holder, s.scores[q.holder], q.score)
	}
	s.refused = append(s.refused[:0], j.refused...)
	s.ended = append(s.ended[:0], j.ended...)
	s.changed = j.changed
}

// commit makes final what has been done since begin.
func (s *LeaseSet) commit(now Instant) {
	if s != nil {
		s.journal.open = false
		s.tidy(now)
	}
}

// ends returns the instant from which nothing in s is of use.
func (s *LeaseSet) ends() Instant {
	if s == nil {
		return 0
	}
	at := s.latest(0)
	if n := len(s.refused); n > 0 {
		at = max(at, s.refused[n-1].At)
	}
	if n := len(s.ended); n > 0 {
		at = max(at, Instant(s.ended[n-1].score*1000))
	}
	return at
}
