package unary

import (
	"cmp"
	"math"
	"math/bits"
	"net"
	"slices"
	"sync"
	"time"
)

// A job is calls of one connection on their way through Serve, whose deadlines
// are close together.
type job struct {
	owner   jobOwner
	line    *line // of the owner's jobs
	h       *handler
	streams []*stream
	calls   []*Call
	due     time.Time // when the calls have waited long enough for a worker, or zero

	prev, next *job // in the line
}

// A line is the jobs of a connection that wait, the oldest first.
type line struct {
	head, tail *job
	calls      int
	rank       int // in queue.lines
	prev, next *line
}

// A jobOwner is the connection that gets the answers of a job.
type jobOwner interface {
	// finish answers the calls. The read loop calls it, and sends the answers later.
	finish(done []*stream)
	// finishServed answers the calls and sends the answers, without blocking.
	finishServed(done []*stream)
	// client is who asked.
	client() net.Addr
}

// maxJob is how many calls a job has at most, and so how many a connection may
// have served in its turn.
const maxJob = 64

var jobs = sync.Pool{New: func() any { return new(job) }}

func newJob(owner jobOwner, line *line, h *handler) *job {
	j := jobs.Get().(*job)
	j.owner, j.line, j.h = owner, line, h
	return j
}

func (j *job) free() {
	clear(j.streams)
	clear(j.calls)
	*j = job{streams: j.streams[:0], calls: j.calls[:0]}
	jobs.Put(j)
}

// setDue lets the calls wait for three quarters of the time that the first of them
// has.
func (j *job) setDue(now time.Time) {
	earliest := time.Time{}
	for _, st := range j.streams {
		if d := st.call.Deadline; !d.IsZero() && (earliest.IsZero() || d.Before(earliest)) {
			earliest = d
		}
	}
	if !earliest.IsZero() {
		j.due = now.Add(earliest.Sub(now) * 3 / 4)
	}
}

// urgency is the same for deadlines that differ by less than an eighth of the time
// that is left, and less for an earlier deadline.
func urgency(deadline, now time.Time) int {
	if deadline.IsZero() {
		return math.MaxInt
	}
	n := uint64(max(deadline.Sub(now), 0))
	size := bits.Len64(n)
	if size <= 4 {
		return int(n)
	}
	return size<<3 | int(n>>(size-4)&7)
}

// setUrgency sets how much time calls have. Those that go First have as little as
// the most urgent.
func setUrgency(h *handler, streams []*stream, now time.Time) {
	least := math.MaxInt
	for _, st := range streams {
		st.urgency = urgency(st.call.Deadline, now)
		least = min(least, st.urgency)
	}
	for _, st := range streams {
		if h.First != nil && st.urgency != least && h.First(&st.call) {
			st.urgency = least
		}
	}
}

func sortByUrgency(streams []*stream) {
	slices.SortStableFunc(streams, func(a, b *stream) int { return cmp.Compare(a.urgency, b.urgency) })
}

// sameDeadline reports whether all calls have the same deadline.
func sameDeadline(streams []*stream) bool {
	for _, st := range streams[1:] {
		if !st.call.Deadline.Equal(streams[0].call.Deadline) {
			return false
		}
	}
	return true
}
