package unary

import (
	"slices"
	"time"
)

// workers are the goroutines that run Serve, and the queue before them.
type workers struct {
	*shared
	queue queue
}

func (w *workers) init(s *shared) {
	w.shared = s
	w.queue.init(s.conf.QueueLimit, s.conf.Panics, w.sweep)
}

// start starts the goroutines.
func (w *workers) start() {
	for range w.conf.Workers {
		w.tasks.start("worker", w.work)
	}
}

// submit queues calls, and answers those for which there is no room. A job must
// end in time for all of its calls, so calls with little time left do not go with
// others.
func (w *workers) submit(owner jobOwner, line *line, h *handler, streams []*stream) {
	if len(streams) == 0 {
		return
	}
	now := time.Now()
	same := sameDeadline(streams)
	if !same {
		w.guard(h, func() { setUrgency(h, streams, now) })
		sortByUrgency(streams)
	}
	most := w.mostOf(h, streams)
	for len(streams) > 0 {
		j, n := newJob(owner, line, h), 1
		for n < min(len(streams), most) && (same || streams[n].urgency == streams[0].urgency) {
			n++
		}
		j.streams = append(j.streams, streams[:n]...)
		streams = streams[n:]
		j.setDue(now)
		w.push(j)
	}
}

// mostOf returns how many calls a job may have. A call that goes First does so by being in one job with the others.
func (w *workers) mostOf(h *handler, streams []*stream) int {
	if w.conf.Alone == nil || !w.conf.Alone() ||
		h.First != nil && slices.ContainsFunc(streams, func(st *stream) bool { return h.First(&st.call) }) {
		return maxJob
	}
	return 1
}

// push queues a job. Those for which there is no room may be of others.
func (w *workers) push(j *job) {
	owner := j.owner
	if j.h.Serve == nil {
		w.shed(j, owner.finish)
		return
	}
	for _, j := range w.queue.push(j) {
		if j.owner == owner {
			w.shed(j, owner.finish)
		} else {
			w.shed(j, j.owner.finishServed)
		}
	}
}

// sweep answers calls that have waited for too long, while there is time to.
func (w *workers) sweep() {
	if !w.tasks.enter() {
		return
	}
	defer w.tasks.leave()
	for _, j := range w.queue.late(time.Now()) {
		w.shed(j, j.owner.finishServed)
	}
}

var errOverloaded = &Status{Unavailable, "too many calls are waiting"}

// shed answers the calls of a job that gets no turn, and frees it.
func (w *workers) shed(j *job, finish func([]*stream)) {
	w.finish(j, finish, "shed", func() { w.answerShed(j) })
}

// finish runs answer, which answers the calls of a job, finishes the job and frees
// it. Where answer panics, outside the handler's guard, the calls fail.
func (w *workers) finish(j *job, finish func([]*stream), where string, answer func()) {
	if w.conf.Panics.Do(where, answer) != nil {
		for _, st := range j.streams {
			st.call.Err = errPanic
		}
	}
	finish(j.streams)
	j.free()
}

// answerShed answers the calls of a job that is not served.
func (w *workers) answerShed(j *job) {
	for _, st := range j.streams {
		if st.call.Cancelled() {
			w.abandoned(st)
		} else {
			j.calls = append(j.calls, &st.call)
		}
	}
	if n := len(j.calls); n > 0 {
		w.counters.shed.Add(uint64(n))
		w.events.add(callShed, n, j.owner.client(), "")
	}
	if j.h.Shed == nil {
		for _, call := range j.calls {
			call.Err = errOverloaded
		}
	} else if !w.guard(j.h, func() { j.h.Shed(j.calls) }) {
		failAll(j.calls)
	}
}

// work is a worker: it serves jobs until the server is closed and none is left.
func (w *workers) work() {
	for served := 0; ; {
		j := w.queue.pop(served)
		if j == nil {
			return
		}
		served = len(j.streams)
		_ = w.conf.Panics.Do("worker", func() { w.serve(j) }) // it is reported
	}
}

// serve serves a job, and frees it.
func (w *workers) serve(j *job) {
	w.finish(j, j.owner.finishServed, "worker", func() { w.answerServed(j) })
}

// answerServed calls the handler with the calls of a job, except for those that
// nobody waits for any more.
func (w *workers) answerServed(j *job) {
	now := time.Now()
	for _, st := range j.streams {
		switch call := &st.call; {
		case call.Cancelled():
			w.abandoned(st)
		case !call.Deadline.IsZero() && !now.Before(call.Deadline):
			w.abandoned(st)
			call.Err = errDeadline
		default:
			j.calls = append(j.calls, call)
		}
	}
	if len(j.calls) > 0 && !w.guard(j.h, func() { j.h.Serve(w.ctx, j.calls) }) {
		failAll(j.calls)
	}
}
