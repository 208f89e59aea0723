package unary

import (
	"time"

	"golang.org/x/net/http2"
)

// streams are the open streams of a connection, the memory that they take, and
// the patience that there is with their client. The connection's mutex guards
// them.
type streams struct {
	*link
	w *writer

	open       map[uint32]*stream
	closed     closedStreams
	sent       sentAnswers
	incomplete int   // streams whose request has not ended
	active     int   // streams whose memory is in use, closed ones among them
	kept       int   // streams that are answered, and kept open
	sendWindow int64 // the send window of a new stream
	recheck    bool  // answers that wait must be looked at: a window has grown, or a call is closed
	checkAt    time.Time

	account      memoryAccount
	requestBytes int // of requests, that count against Config.MaxHeld
	answerBytes  int // of answers that wait
	readBytes    int // of read buffers

	patience, settingsPatience budget
}

func (s *streams) init(l *link, w *writer) {
	s.link, s.w = l, w
	s.open = make(map[uint32]*stream)
	s.sendWindow = defaultWindow
	s.account.Pool, s.account.server = l.pool, &l.requestBytes
	s.patience = newBudget(patience, patiencePerSec, l.now)
	s.settingsPatience = newBudget(settingsPatience, settingsPatiencePerSec, l.now)
}

// pay takes points from the patience, and closes the connection when none is left.
func (s *streams) pay(points int) { s.payFrom(&s.patience, points) }

func (s *streams) payFrom(b *budget, points int) {
	if !b.pay(points, s.now) && s.state < stateClosing {
		s.counters.floods.Add(1)
		s.abusive = true
		s.w.fail(http2.ErrCodeEnhanceYourCalm, "too many frames that lead to nothing")
	}
}

// add opens a stream.
func (s *streams) add(id uint32, q *request) *stream {
	st := newStream(id, q.h)
	s.open[id] = st
	s.active++
	s.incomplete++
	st.since = s.now
	st.declared, st.received = q.length, 0
	st.recvWindow, st.sendWindow = defaultWindow, s.sendWindow
	return st
}

// requestEnds notes that the client has sent all of a request.
func (s *streams) requestEnds(st *stream) {
	if !st.ended {
		st.ended = true
		s.incomplete--
	}
}

// turnAway refuses a stream so that the client knows that it may try it again.
func (s *streams) turnAway(id uint32) {
	s.callCount.refused++
	s.logEvent(tooManyCalls, "")
	s.w.reset(id, http2.ErrCodeRefusedStream)
	s.closed.add(id, true)
}

// countFailure counts a call that is answered with an error.
func (s *streams) countFailure(status *Status) {
	code := status.Code
	if code >= numCodes {
		code = unknown
	}
	s.callCount.failed++
	s.counters.failures[code].Add(1)
}

// refuse answers a call that does not reach its handler, also before its request
// has ended.
func (s *streams) refuse(st *stream, status *Status) {
	kind := callFailed
	if status == errMemory {
		kind = tooMuchMemory
	}
	s.failWith(st, kind, 200, status)
	if !st.ended { // as HTTP has it: no fault, but do not send the rest
		s.w.reset(st.id, http2.ErrCodeNo)
	}
	s.drop(st, !st.ended)
}

// failWith queues the answer of a call that does not reach its handler.
func (s *streams) failWith(st *stream, kind eventKind, httpStatus int, status *Status) {
	s.countFailure(status)
	s.logEvent(kind, status.Message)
	s.w.failure(st.id, httpStatus, status)
}

// resetStream ends a stream for a fault of the client's that costs it no patience.
func (s *streams) resetStream(st *stream, code http2.ErrCode) {
	s.w.reset(st.id, code)
	s.drop(st, true)
}

// streamError ends a stream for a fault of the client's.
func (s *streams) streamError(id uint32, code http2.ErrCode) {
	s.pay(costStreamError)
	s.w.reset(id, code)
	if st := s.open[id]; st != nil {
		s.drop(st, true)
		return
	}
	if known, _ := s.closed.find(id); !known {
		s.closed.add(id, true)
	}
}

// cancel ends a call that the client has reset.
func (s *streams) cancel(id uint32) {
	st := s.open[id]
	if st == nil {
		s.pay(costUseless)
		if undo := s.sent.take(id); undo != nil {
			s.callUndo(undo)
		}
		return
	}
	if !st.handed && !st.kept { // the handler's work has its own bounds
		s.pay(costReset)
	}
	s.countCancelled(st)
	s.drop(st, false)
}

// countCancelled counts a call that its client ends, unless it has its answer.
func (s *streams) countCancelled(st *stream) {
	if !st.kept {
		s.callCount.cancelled++
	}
}

// answered closes a stream whose answer is queued.
func (s *streams) answered(st *stream) {
	if undo := st.call.Undo; undo != nil {
		s.sent.add(st.id, st.call.UndoSize, undo, s.now)
		st.call.Undo = nil
	}
	s.patience.refill(answerCredit)
	s.drop(st, false)
}

// maxKept is how many answered calls a connection may keep open.
const maxKept = 4

// keepOpen keeps an answered call open, and reports whether it may be.
func (s *streams) keepOpen(st *stream) bool {
	if s.kept >= maxKept || s.state != stateOpen {
		return false
	}
	s.kept++
	st.kept = true
	s.dropRequest(st)
	s.patience.refill(answerCredit)
	return true
}

// endKept ends the calls that are kept open.
func (s *streams) endKept() {
	if s.kept == 0 {
		return
	}
	for _, st := range s.open {
		if st.kept {
			s.w.queued = s.w.enc.trailersFrame(s.w.queued, st.id)
			s.drop(st, false)
		}
	}
}

// idle reports whether no call is being answered or on its way to be.
func (s *streams) idle() bool { return s.active-s.kept <= s.incomplete }

// drop takes a stream out of the table. cut says that we cut it off while the
// client may still send.
func (s *streams) drop(st *stream, cut bool) {
	if st.closed {
		return
	}
	st.closed = true
	if st.kept {
		s.kept--
	}
	if !st.ended {
		s.incomplete--
	}
	delete(s.open, st.id)
	s.closed.add(st.id, cut)
	if st.ready || st.handed || st.waiting {
		// Someone still has it, and releases it when its turn comes.
		st.call.cancelled.Store(true)
		s.recheck = s.recheck || st.waiting
		return
	}
	s.release(st)
}

// abandon ends a call that nobody waits for.
func (s *streams) abandon(st *stream) {
	if st.closed {
		s.release(st)
	} else {
		s.drop(st, true)
	}
}

// release gives a stream's memory back. Until then it counts as active, so that
// calls that are cancelled cannot pile up in a handler.
func (s *streams) release(st *stream) {
	s.active--
	s.requestBytes -= st.counted
	if undo := st.call.Undo; undo != nil { // the answer was not sent
		s.callUndo(undo)
	}
	st.recycle()
}

var errMemory = &Status{ResourceExhausted, "too many bytes of requests in flight"}

// memory is how many bytes the connection keeps.
func (s *streams) memory() int {
	calls := s.requestBytes + s.active*streamCost
	if s.state == stateClosed { // the rest goes with the connection
		return calls
	}
	return calls + s.readBytes + s.w.memory() + s.answerBytes + s.sent.bytes
}

// count reports to the server how much memory the connection keeps, and what it has
// counted of calls.
func (s *streams) count() {
	s.counters.add(&s.callCount)
	s.account.set(s.memory(), s.requestBytes)
}

// room reports whether the connection may keep n more bytes.
func (s *streams) room(n int) bool {
	total := s.memory() + n
	if !s.account.Grants(total) {
		return false
	}
	if s.account.Unknown(total) > countAfter {
		s.account.set(s.memory(), s.requestBytes)
	}
	return true
}

// reserve accounts for n more bytes of a request. What a stream counts covers
// those of an ordinary one, so that a few large requests do not shut out small
// ones.
func (s *streams) reserve(st *stream, n int) *Status {
	st.size += n
	more := max(0, st.size-maxKeptBuffer) - st.counted
	if more <= 0 {
		return nil
	}
	if s.requestBytes+more > s.conf.MaxHeld || !s.room(more) {
		return errMemory
	}
	st.counted += more
	s.requestBytes += more
	return nil
}

// dropRequest gives back what a request takes whose answer waits, or that is too large.
func (s *streams) dropRequest(st *stream) {
	s.requestBytes -= st.counted
	st.counted, st.size = 0, 0
	st.body, st.plain, st.call.Message = kept(st.body), nil, nil
	st.call.Reply = kept(st.call.Reply) // st.answer has it
}

// forgo drops the message of a call whose handler answers calls without it, if status reports that
// there is no room. Later DATA of the call is dropped, too. It reports whether it did so.
func (s *streams) forgo(st *stream, status *Status) bool {
	if status == nil || status.Code != ResourceExhausted || st.h == nil || !st.h.TooLarge {
		return false
	}
	if status == errMemory {
		s.logEvent(tooMuchMemory, status.Message)
	}
	st.call.TooLarge = true
	s.dropRequest(st)
	return true
}

// refuseIncomplete gives up the requests that are not complete.
func (s *streams) refuseIncomplete() {
	if s.incomplete == 0 {
		return // a walk over streams whose answers wait would be of no use
	}
	for _, st := range s.open {
		if !st.ended && !st.call.TooLarge && !s.forgo(st, errMemory) {
			s.refuse(st, errMemory)
		}
	}
}

// checkLater makes sure that a stream with a deadline is checked
// in time.
func (s *streams) checkLater() {
	at := s.now.Add(min(s.conf.ReadTimeout, s.conf.WriteTimeout))
	if s.checkAt.IsZero() || at.Before(s.checkAt) {
		s.checkAt = at
	}
}

var errSlow = &Status{DeadlineExceeded, "the request did not arrive in time"}

// check ends requests that do not arrive and answers that the client gives no
// window for.
func (s *streams) check() {
	if s.checkAt.IsZero() || s.now.Before(s.checkAt) {
		return
	}
	s.checkAt = time.Time{}
	for _, st := range s.open {
		switch {
		case !st.ended && s.now.Sub(st.since) > s.conf.ReadTimeout:
			s.counters.timeouts.Add(1)
			s.refuse(st, errSlow)
		case st.waiting && s.now.Sub(st.since) > s.conf.WriteTimeout:
			s.counters.timeouts.Add(1)
			s.resetStream(st, http2.ErrCodeEnhanceYourCalm)
		case !st.ended || st.waiting:
			s.checkLater()
		}
	}
}

// closeAll ends all calls of a connection that is closed.
func (s *streams) closeAll() {
	for _, st := range s.open {
		s.countCancelled(st)
		s.drop(st, false)
	}
	s.sent = sentAnswers{}
}
