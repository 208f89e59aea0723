package unary

import "time"

// A sentAnswer is what to undo if the client turns out not to have taken an
// answer that was sent.
type sentAnswer struct {
	id   uint32
	size int // bytes that undo keeps in memory
	at   time.Time
	undo func()
}

// sentAnswers are those that were sent last and can be undone, the oldest first.
type sentAnswers struct {
	list  []sentAnswer // those from first on count
	first int
	bytes int
}

// Bounds of what is kept of sent answers. A client's reset is a round trip behind
// an answer, so more is of no use.
const (
	maxSentAnswers     = 1024
	maxSentAnswerBytes = 256 << 10
	sentAnswerLife     = time.Second
	sentAnswerSize     = 48 // bytes of a sentAnswer itself
)

// add keeps the undo function of an answer. At a bound the oldest are dropped.
func (l *sentAnswers) add(id uint32, size int, undo func(), now time.Time) {
	l.prune(now)
	size += sentAnswerSize
	for len(l.list)-l.first >= maxSentAnswers || l.bytes+size > maxSentAnswerBytes && l.first < len(l.list) {
		l.drop()
	}
	if l.first > 0 && len(l.list) == cap(l.list) { // before it grows
		n := copy(l.list, l.list[l.first:])
		clear(l.list[n:])
		l.list, l.first = l.list[:n], 0
	}
	l.list = append(l.list, sentAnswer{id, size, now, undo})
	l.bytes += size
}

// prune drops the answers that are too old.
func (l *sentAnswers) prune(now time.Time) {
	for l.first < len(l.list) && now.Sub(l.list[l.first].at) > sentAnswerLife {
		l.drop()
	}
	if l.first == len(l.list) {
		l.list, l.first = l.list[:0], 0
	}
}

// drop drops the oldest.
func (l *sentAnswers) drop() {
	l.bytes -= l.list[l.first].size
	l.list[l.first] = sentAnswer{}
	l.first++
}

// take returns the undo function of a stream's answer, once, or nil.
func (l *sentAnswers) take(id uint32) func() {
	for i := l.first; i < len(l.list); i++ {
		if l.list[i].id == id {
			undo := l.list[i].undo
			l.list[i].undo = nil
			return undo
		}
	}
	return nil
}
