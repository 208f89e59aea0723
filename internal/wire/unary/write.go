package unary

import (
	"bytes"
	"time"

	"golang.org/x/net/http2"
)

const (
	connWindow  = 1 << 20     // bytes that a client may send ahead on a connection
	writeChunk  = 256 << 10   // bytes per write
	writeAhead  = 128 << 10   // bytes queued at which the read loop waits for the socket
	maxQueued   = 4 << 20     // bytes queued at which answers wait for room
	closingTime = time.Second // how long a client may take to close after GOAWAY
)

// A writer queues what a connection sends, and writes it. The connection's mutex
// guards it.
type writer struct {
	*link
	answers waitingAnswers

	queued, spare []byte // what is to be written; the other buffer while one is written
	writing       bool
	inWrite       int       // bytes of the buffer that is being written
	since         time.Time // when the latest write began
	enc           encoder
	closeBy       time.Time // when stateHalfClosed ends
}

// waitingAnswers are the calls of a connection whose answers are not queued yet.
type waitingAnswers interface {
	// queueMore queues answers that wait for room.
	queueMore()
	// unfinished reports whether any call is not answered yet.
	unfinished() bool
}

func (w *writer) init(l *link, answers waitingAnswers) {
	w.link, w.answers = l, answers
	w.enc.size = headerTableSize
	l.wake.L = &l.mu
}

// greet queues the server's preface: its settings, and the connection's window.
func (w *writer) greet() {
	start := len(w.queued)
	b := appendFrame(w.queued, http2.FrameSettings, 0, 0, 0)
	b = appendSetting(b, http2.SettingMaxConcurrentStreams, uint32(w.conf.MaxConcurrentStreams))
	b = appendSetting(b, http2.SettingMaxHeaderListSize, uint32(w.conf.MaxHeaderListSize))
	b = setLength(b, start)
	w.queued = appendWindowUpdate(b, 0, connWindow-defaultWindow)
}

// reset queues RST_STREAM.
func (w *writer) reset(id uint32, code http2.ErrCode) { w.queued = appendReset(w.queued, id, code) }

// windowUpdate gives n bytes of window back to the client.
func (w *writer) windowUpdate(id uint32, n int) { w.queued = appendWindowUpdate(w.queued, id, n) }

func (w *writer) ping(flags http2.Flags, data [8]byte) { w.queued = appendPing(w.queued, flags, data) }

func (w *writer) goAway(last uint32, code http2.ErrCode, reason string) {
	w.queued = appendGoAway(w.queued, last, code, reason)
}

func (w *writer) settingsAck() {
	w.queued = appendFrame(w.queued, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
}

// failure queues the answer of a failed call.
func (w *writer) failure(id uint32, httpStatus int, status *Status) {
	w.queued = w.enc.failureFrame(w.queued, id, httpStatus, status)
}

// fail ends the connection with GOAWAY for a fault of the client's.
func (w *writer) fail(code http2.ErrCode, reason string) {
	if w.state >= stateClosing {
		return
	}
	w.state, w.reason = stateClosing, reason
	w.counters.protocolErrors.Add(1)
	w.goAway(w.lastID, code, reason)
}

// notHTTP2 is the answer to a client that speaks HTTP/1.1.
const notHTTP2 = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n" +
	"Content-Length: 51\r\n\r\nThis port speaks gRPC over HTTP/2, and no HTTP/1.1\n"

// turnAway ends the connection of a client that does not speak HTTP/2. sent is what it has sent so far.
func (w *writer) turnAway(sent []byte) {
	const handshake = 22 // the type of TLS's first record
	w.counters.foreign.Add(1)
	w.ending = notSpoken
	reason := "the client does not speak HTTP/2"
	line, _, _ := bytes.Cut(sent, []byte("\n"))
	switch {
	case sent[0] == handshake:
		reason = "the client speaks TLS, and the port does not"
	case bytes.Contains(line, []byte(" HTTP/1.")):
		w.state, w.reason = stateClosing, "the client speaks HTTP/1.1, and the port HTTP/2"
		w.queued = append(w.queued, notHTTP2...)
		return
	}
	w.close(reason)
}

// flush writes what is queued, unless another goroutine does. With wait, which the
// read loop sets, it does not let much be queued for a client that does not read:
// it waits until there is room or the write has failed, which a timeout sees to.
// It reports whether the connection is still open.
func (w *writer) flush(wait bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wait && w.writing && len(w.queued) > writeAhead && w.state != stateClosed {
		w.wake.Wait()
	}
	if !w.writing {
		w.writing = true
		w.write()
		w.writing = false
		w.wake.Broadcast()
	}
	return w.state != stateClosed
}

// flushLater writes what is queued in a goroutine of its own, for those who must
// not wait for a client.
func (w *writer) flushLater() {
	w.mu.Lock()
	start := !w.writing && w.state != stateClosed && (len(w.queued) > 0 || w.state == stateDraining ||
		w.state == stateClosing)
	w.mu.Unlock()
	if start && w.tasks.enter() {
		w.conf.Panics.Go("flush", func() {
			defer w.tasks.leave()
			w.flush(false)
		})
	}
}

// write writes until nothing is queued, then closes our side if it is time to.
func (w *writer) write() {
	for w.state < stateHalfClosed {
		if len(w.queued) > 0 {
			w.writeQueued()
			w.answers.queueMore()
			continue
		}
		if w.state == stateDraining && !w.answers.unfinished() {
			w.state = stateClosing
		}
		if w.state != stateClosing {
			return
		}
		w.state = stateHalfClosed
		w.since = time.Now()
		w.closeBy = w.since.Add(closingTime)
		w.mu.Unlock()
		closeWrite(w.nc)
		w.mu.Lock()
	}
}

// writeQueued writes what is queued now. It unlocks the mutex while it writes.
func (w *writer) writeQueued() {
	buf := w.queued
	w.queued = w.spare[:0]
	w.spare = nil
	w.inWrite = cap(buf)
	for rest := buf; len(rest) > 0 && w.state != stateClosed; {
		chunk := rest[:min(len(rest), writeChunk)]
		rest = rest[len(chunk):]
		w.since = time.Now()
		w.mu.Unlock()
		_, err := w.nc.Write(chunk)
		w.mu.Lock()
		w.wake.Broadcast()
		if err != nil {
			w.close("write: " + err.Error())
		}
	}
	w.inWrite = 0
	if cap(buf) <= largeReadBuffer {
		w.spare = buf[:0]
	}
}

// memory is how many bytes the writer keeps.
func (w *writer) memory() int { return cap(w.queued) + cap(w.spare) + w.inWrite }

// unread is how many bytes wait for the client to read.
func (w *writer) unread() int { return len(w.queued) + w.inWrite }

// blockedFor is how long the write under way has taken, or 0.
func (w *writer) blockedFor() time.Duration {
	if !w.writing {
		return 0
	}
	return w.now.Sub(w.since)
}

// trim drops buffers that are empty.
func (w *writer) trim() {
	if !w.writing && len(w.queued) == 0 {
		w.queued, w.spare = nil, nil
	}
}
