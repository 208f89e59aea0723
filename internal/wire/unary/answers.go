package unary

import "golang.org/x/net/http2"

const (
	maxDataFrame = 64 << 10 // bytes; the largest DATA that we send
	maxWaiting   = 4 << 20  // bytes of a connection's answers that wait for window
)

// answers sends what handlers say, as the client's windows allow. The connection's
// mutex guards it.
type answers struct {
	*streams
	waiting    []*stream // whose answer waits, the oldest first
	sendWindow int64     // bytes that the client lets us send on the connection
	frameSize  int       // bytes of the largest DATA that we send
}

func (a *answers) init(s *streams) {
	a.streams = s
	a.sendWindow, a.frameSize = defaultWindow, minFrame
}

// answer sends what the handler said, or keeps it until there is window.
func (a *answers) answer(st *stream) {
	st.handed = false
	if st.closed || a.state >= stateHalfClosed {
		a.abandon(st)
		return
	}
	call := &st.call
	if call.Err != nil && call.Err.Code != OK {
		a.countFailure(call.Err)
		a.w.failure(st.id, 200, call.Err)
		a.drop(st, false)
		return
	}
	a.callCount.answered++
	w, n := a.w, len(call.Reply)
	w.queued = w.enc.headFrame(w.queued, st.id)
	total := messagePrefix + n
	if int64(total) > min(a.sendWindow, st.sendWindow, int64(a.frameSize)) || len(w.queued) > maxQueued {
		a.wait(st)
		return
	}
	a.sendWindow -= int64(total)
	w.queued = appendFrame(w.queued, http2.FrameData, 0, st.id, total)
	w.queued = append(appendMessagePrefix(w.queued, n), call.Reply...)
	if call.Open && a.keepOpen(st) {
		return
	}
	w.queued = w.enc.trailersFrame(w.queued, st.id)
	a.answered(st)
}

// wait keeps an answer until there is window for it.
func (a *answers) wait(st *stream) {
	st.keepAnswer()
	if a.answerBytes+cap(st.answer) > maxWaiting || !a.room(cap(st.answer)) {
		a.pay(costUnread)
		a.resetStream(st, http2.ErrCodeEnhanceYourCalm)
		return
	}
	a.dropRequest(st)
	st.since, st.waiting = a.now, true
	a.answerBytes += cap(st.answer)
	a.waiting = append(a.waiting, st)
	a.recheck = true // a part of it may fit
	a.checkLater()
}

// queueMore queues of the waiting answers what the windows allow, the oldest
// first.
func (a *answers) queueMore() {
	a.recheck = false
	if len(a.waiting) == 0 {
		return
	}
	still := a.waiting[:0]
	for _, st := range a.waiting {
		if !st.closed && !a.queuePart(st) {
			still = append(still, st)
			continue
		}
		a.answerBytes -= cap(st.answer)
		st.waiting = false
		if st.closed {
			a.release(st)
			continue
		}
		a.w.queued = a.w.enc.trailersFrame(a.w.queued, st.id)
		a.answered(st)
	}
	clear(a.waiting[len(still):])
	a.waiting = still
}

// queuePart queues what it can of an answer and reports whether that is all.
func (a *answers) queuePart(st *stream) bool {
	w := a.w
	for st.sent < len(st.answer) {
		n := min(int64(len(st.answer)-st.sent), st.sendWindow, a.sendWindow, int64(a.frameSize))
		if n <= 0 || len(w.queued) > maxQueued {
			return false
		}
		w.queued = appendFrame(w.queued, http2.FrameData, 0, st.id, int(n))
		w.queued = append(w.queued, st.answer[st.sent:st.sent+int(n)]...)
		st.sent += int(n)
		st.sendWindow -= n
		a.sendWindow -= n
		st.since = a.now
	}
	return true
}

// unread is how many bytes the connection keeps for answers that the client does not
// take: those that wait, with their streams, and those that are queued.
func (a *answers) unread() int { return a.answerBytes + len(a.waiting)*streamCost + a.w.unread() }

// unfinished reports whether any call is not answered yet.
func (a *answers) unfinished() bool { return a.active > 0 }

// recheckWaiting queues more if a window has grown or a waiting call was closed.
func (a *answers) recheckWaiting() {
	if a.recheck {
		a.queueMore()
	}
}

// windowUpdate opens a send window.
func (a *answers) windowUpdate(id uint32, increment int64) {
	a.pay(costWindowUpdate + len(a.waiting)/walkPerPoint)
	a.recheck = true
	if id == 0 {
		if a.sendWindow += increment; a.sendWindow > maxWindow {
			a.w.fail(http2.ErrCodeFlowControl, "window above 2^31-1")
		}
		return
	}
	st := a.open[id]
	if st == nil {
		if a.neverOpened(id) {
			a.w.fail(http2.ErrCodeProtocol, "WINDOW_UPDATE on an idle stream")
		}
		return
	}
	if st.sendWindow += increment; st.sendWindow > maxWindow {
		a.resetStream(st, http2.ErrCodeFlowControl)
	}
}

// initialWindow changes the window of all streams, as SETTINGS may. It returns
// what that costs, in points.
func (a *answers) initialWindow(size int64) (cost int) {
	delta := size - a.streams.sendWindow
	if delta == 0 {
		return 0
	}
	cost = (len(a.open) + len(a.waiting)) / walkPerPoint
	a.streams.sendWindow = size
	a.recheck = true
	for _, st := range a.open {
		if st.sendWindow += delta; st.sendWindow > maxWindow {
			a.w.fail(http2.ErrCodeFlowControl, "window above 2^31-1")
			return cost
		}
	}
	return cost
}

// closeAll ends the answers that wait, of a connection that is closed.
func (a *answers) closeAll() {
	for _, st := range a.waiting {
		a.release(st)
	}
	a.waiting = nil
}
