package settings

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of a log that nobody reads.
const (
	logPatience = 100 * time.Millisecond // how long a line waits to be written, unless others are waiting
	maxUnread   = 1 << 20                // bytes of lines that wait
)

// A logWriter writes lines. A caller waits until its line is written, so that lines keep their place among other
// output, but not for long: a pipe whose reader is stuck, or a disk that does not answer, must not delay requests.
// Lines beyond maxUnread and lines that cannot be written are lost. The log reports their number as soon as it can be
// written.
type logWriter struct {
	to   io.Writer
	note func(lost int) []byte // a line about lines that were lost
	lost *atomic.Int64         // all lines that were lost

	mu      sync.Mutex
	writing bool // a goroutine writes; it ends when no line waits
	unread
	torn bool // the last line was written in part
}

// unread has the lines that are not written yet, and the numbers of lost lines that the log does not report yet.
type unread struct {
	failed  int    // lines that could not be written, before those that wait
	waiting []byte // whole lines
	lines   int    // in waiting
	missing int    // lines that had no room, after those that wait
}

// Write never fails: there is no other place to report an error.
func (w *logWriter) Write(line []byte) (int, error) {
	if !w.queue(line) {
		return len(line), nil
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.writeAll()
	}()
	select {
	case <-written:
	case <-time.After(logPatience):
	}
	return len(line), nil
}

// queue appends a line to those that wait, if there is room. It reports whether the caller must start to write.
func (w *logWriter) queue(line []byte) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing && (w.missing > 0 || len(w.waiting)+len(line) > maxUnread) {
		w.missing++
		w.lost.Add(1)
		return false
	}
	w.waiting = append(w.waiting, line...)
	w.lines++
	first, w.writing = !w.writing, true
	return first
}

// writeAll writes until no line waits.
func (w *logWriter) writeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.lines+w.missing > 0 {
		now := w.unread
		w.unread = unread{}
		text := w.text(&now)
		w.mu.Unlock()
		n, err := w.to.Write(text)
		w.mu.Lock()
		if n > 0 {
			w.torn = text[n-1] != '\n'
		}
		if err != nil {
			w.failed += now.failed + now.lines + now.missing
			w.lost.Add(int64(now.lines))
		}
	}
	w.writing = false
}

// text returns the lines that wait, with a note in each place where lines were lost.
func (w *logWriter) text(u *unread) []byte {
	text := u.waiting
	if u.failed > 0 {
		text = append(w.note(u.failed), text...)
	}
	if w.torn {
		text = append([]byte{'\n'}, text...)
	}
	if u.missing > 0 {
		text = append(text, w.note(u.missing)...)
	}
	return text
}
