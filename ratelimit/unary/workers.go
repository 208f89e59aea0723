package unary

import (
	"runtime/debug"
	"sync"
	"time"
)

// A job is calls of one connection on their way through Serve.
type job struct {
	c       *conn
	h       *handler
	streams []*stream
	calls   []*Call
}

var jobs = sync.Pool{New: func() any { return new(job) }}

func newJob(c *conn, h *handler) *job {
	j := jobs.Get().(*job)
	j.c, j.h = c, h
	return j
}

func (j *job) free() {
	clear(j.streams)
	clear(j.calls)
	j.c, j.h, j.streams, j.calls = nil, nil, j.streams[:0], j.calls[:0]
	jobs.Put(j)
}

// submit queues a job, or tells that there is no room for its calls.
func (s *Server) submit(j *job) bool {
	if j.h.Serve == nil {
		return false
	}
	n := int64(len(j.streams))
	if s.waiting.Add(n) <= int64(s.conf.QueueLimit) {
		select {
		case s.queue <- j:
			return true
		default:
		}
	}
	s.waiting.Add(-n)
	return false
}

// shed fails the calls of a job for which there is no room.
func (j *job) shed() {
	for _, st := range j.streams {
		j.calls = append(j.calls, &st.call)
	}
	j.c.s.stats.shed.Add(uint64(len(j.calls)))
	if j.h.Shed != nil {
		j.h.Shed(j.calls)
		return
	}
	for _, call := range j.calls {
		call.Err = errOverloaded
	}
}

var errOverloaded = &Status{Unavailable, "too many calls are waiting"}

// work is a worker: it takes jobs until the server is closed and none is left.
func (s *Server) work() {
	defer s.running.Done()
	for {
		select {
		case j := <-s.queue:
			s.do(j)
			continue
		case <-s.ctx.Done():
		}
		select {
		case j := <-s.queue:
			s.do(j)
		default:
			return
		}
	}
}

// do serves a job, except for calls that nobody waits for any more.
func (s *Server) do(j *job) {
	s.waiting.Add(-int64(len(j.streams)))
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
		s.serve(j)
	}
	c := j.c
	c.mu.Lock()
	c.now = time.Now()
	c.mu.Unlock()
	c.finish(j.streams)
	c.flushSoon()
	j.free()
}

// serve calls the handler, and turns a panic into a failure of the calls.
func (s *Server) serve(j *job) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(j.h, p)
			failAll(j.calls)
		}
	}()
	j.h.Serve(s.ctx, j.calls)
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
	s.log.Error("handler panicked", "method", h.method, "panic", p, "stack", string(debug.Stack()))
}

func failAll(calls []*Call) {
	for _, call := range calls {
		if call != nil {
			call.Err = errPanic
		}
	}
}

var errPanic = &Status{Internal, "the handler failed"}
