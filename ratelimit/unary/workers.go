package unary

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// A job is calls of one connection on their way through Serve, whose deadlines
// are close together.
type job struct {
	c       *conn
	h       *handler
	streams []*stream
	calls   []*Call
	due     time.Time // when the calls have waited long enough for a worker, or zero

	prev, next *job // in the connection's line
}

// maxJob is how many calls a job has at most, and so how many a connection may
// have served in its turn.
const maxJob = 64

var jobs = sync.Pool{New: func() any { return new(job) }}

func newJob(c *conn, h *handler) *job {
	j := jobs.Get().(*job)
	j.c, j.h = c, h
	return j
}

func (j *job) free() {
	clear(j.streams)
	clear(j.calls)
	*j = job{streams: j.streams[:0], calls: j.calls[:0]}
	jobs.Put(j)
}

// haste is the same for deadlines that differ by less than an eighth of the time
// that is left.
func haste(deadline, now time.Time) int {
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

// submit queues calls for the workers, and answers those for which there is no
// room. Calls with little time left do not go with others: a job must end in time
// for all of its calls.
func (c *conn) submit(h *handler, streams []*stream) {
	now := time.Now()
	same := true
	for _, st := range streams[1:] {
		same = same && st.call.Deadline.Equal(streams[0].call.Deadline)
	}
	if !same {
		c.byHaste(h, streams, now)
	}
	for len(streams) > 0 {
		j, n := newJob(c, h), 1
		for n < min(len(streams), maxJob) && (same || streams[n].haste == streams[0].haste) {
			n++
		}
		j.streams = append(j.streams, streams[:n]...)
		streams = streams[n:]
		earliest := time.Time{}
		for _, st := range j.streams {
			if d := st.call.Deadline; !d.IsZero() && (earliest.IsZero() || d.Before(earliest)) {
				earliest = d
			}
		}
		if !earliest.IsZero() {
			j.due = now.Add(earliest.Sub(now) * 3 / 4)
		}
		c.queue(j)
	}
}

// byHaste sorts calls by how much time they have. What others must find done
// goes with the first of them.
func (c *conn) byHaste(h *handler, streams []*stream, now time.Time) {
	least := math.MaxInt
	for _, st := range streams {
		st.haste = haste(st.call.Deadline, now)
		least = min(least, st.haste)
	}
	for _, st := range streams {
		if h.First != nil && st.haste != least && h.First(&st.call) {
			st.haste = least
		}
	}
	slices.SortStableFunc(streams, func(a, b *stream) int { return cmp.Compare(a.haste, b.haste) })
}

// queue queues a job. Those for which there is no room may be of others.
func (c *conn) queue(j *job) {
	if j.h.Serve == nil {
		j.shed()
		return
	}
	for _, j := range c.s.queue.push(j) {
		loser := j.c
		j.shed()
		if loser != c {
			loser.flushSoon()
		}
	}
}

// sweep answers calls that have waited for too long, while there is time to.
func (s *Server) sweep() {
	if !s.hold() {
		return
	}
	defer s.running.Done()
	for _, j := range s.queue.late(time.Now()) {
		c := j.c
		j.shed()
		c.flushSoon()
	}
}

// shed answers the calls of a job that is not served, and frees it.
func (j *job) shed() {
	s := j.c.s
	for _, st := range j.streams {
		if st.call.Cancelled() {
			s.abandoned(st)
		} else {
			j.calls = append(j.calls, &st.call)
		}
	}
	if n := len(j.calls); n > 0 {
		s.stats.shed.Add(uint64(n))
		s.trouble(callShed, n, j.c.nc.RemoteAddr(), "")
	}
	if j.h.Shed == nil {
		for _, call := range j.calls {
			call.Err = errOverloaded
		}
	} else {
		j.guard(func() { j.h.Shed(j.calls) })
	}
	j.c.finish(j.streams)
	j.free()
}

var errOverloaded = &Status{Unavailable, "too many calls are waiting"}

// work is a worker: it takes jobs until the server is closed and none is left.
func (s *Server) work() {
	defer s.running.Done()
	for done := 0; ; {
		j := s.queue.pop(done)
		if j == nil {
			return
		}
		done = len(j.streams)
		_ = s.conf.Panics.Do("worker", func() { s.do(j) }) // it is reported
	}
}

// do serves a job, except for calls that nobody waits for any more.
func (s *Server) do(j *job) {
	now := time.Now()
	for _, st := range j.streams {
		switch call := &st.call; {
		case call.Cancelled():
			s.abandoned(st)
		case !call.Deadline.IsZero() && !now.Before(call.Deadline):
			s.abandoned(st)
			call.Err = errDeadline
		default:
			j.calls = append(j.calls, call)
		}
	}
	if len(j.calls) > 0 {
		j.guard(func() { j.h.Serve(s.ctx, j.calls) })
	}
	c := j.c
	c.mu.Lock()
	c.now = time.Now()
	c.mu.Unlock()
	c.finish(j.streams)
	c.flushSoon()
	j.free()
}

// guard calls the handler, and turns a panic into a failure of the calls.
func (j *job) guard(handle func()) {
	defer func() {
		if p := recover(); p != nil {
			j.c.s.panicked(j.h, p)
			failAll(j.calls)
		}
	}()
	handle()
}

// abandoned hands a call that nobody waits for to its handler, if that wants
// to know.
func (s *Server) abandoned(st *stream) {
	if st.h == nil || st.h.Abandoned == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			s.panicked(st.h, p)
		}
	}()
	st.h.Abandoned(&st.call)
}

func (s *Server) panicked(h *handler, p any) {
	_ = s.conf.Panics.Report(h.method, p) // the client gets errPanic and no more
}

func failAll(calls []*Call) {
	for _, call := range calls {
		if call != nil {
			call.Err = errPanic
		}
	}
}

var errPanic = &Status{Internal, "the handler failed"}
