package settings

import (
	"io"
	"sync"
	"time"
)

// Bounds of a log that nobody reads.
const (
	logPatience = 100 * time.Millisecond // how long a line waits to be written, unless others are waiting
	maxUnread   = 1 << 20                // bytes of lines that wait
)

// A logWriter writes lines. A caller waits until its line is written, so that lines keep their place among other
// output, but not for long: a pipe whose reader is stuck, or a disk that does not answer, must not delay requests.
// Lines beyond maxUnread are lost, and counted.
type logWriter struct {
	to   io.Writer
	lost func(lines int) []byte // a line about lines that were lost

	mu      sync.Mutex
	writing bool   // a goroutine is, which writes what waits as well, and then ends
	waiting []byte // whole lines
	missing int    // lines that had no room
}

// Write never fails: there is no other place to report an error.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	if w.writing {
		if w.missing > 0 || len(w.waiting)+len(line) > maxUnread {
			w.missing++
		} else {
			w.waiting = append(w.waiting, line...)
		}
		w.mu.Unlock()
		return len(line), nil
	}
	w.writing = true
	w.mu.Unlock()
	written := make(chan struct{})
	lines := append([]byte(nil), line...)
	go func() {
		defer close(written)
		for lines != nil {
			_, _ = w.to.Write(lines)
			lines = w.next()
		}
	}()
	select {
	case <-written:
	case <-time.After(logPatience):
	}
	return len(line), nil
}

// next returns lines to write, or notes that nobody is writing, and returns nil.
func (w *logWriter) next() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.waiting
	if w.missing > 0 {
		lines = append(lines, w.lost(w.missing)...)
	}
	w.writing, w.waiting, w.missing = len(lines) > 0, nil, 0
	if !w.writing {
		return nil
	}
	return lines
}
