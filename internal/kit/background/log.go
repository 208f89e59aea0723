package background

import (
	"sync"
	"sync/atomic"
	"time"
)

// A LogLimit bounds how many lines a log gets, so that a flood of events does not flood the log: it allows PerSecond
// events in each second. It may be used concurrently.
type LogLimit struct {
	PerSecond int64

	second  atomic.Int64
	count   atomic.Int64
	skipped atomic.Int64
}

// Allow reports whether to log an event now, and how many events were skipped
// since the last one that it allowed.
func (l *LogLimit) Allow() (ok bool, skipped int64) {
	now := time.Now().Unix()
	if l.second.Load() != now && l.second.Swap(now) != now { // in a flood nobody writes what nobody changes
		l.count.Store(0)
	}
	if l.count.Load() >= l.PerSecond || l.count.Add(1) > l.PerSecond {
		l.skipped.Add(1)
		return false, 0
	}
	return true, l.skipped.Swap(0)
}

// A LogLimits has a [LogLimit] for each message, so that many events of one kind
// do not hide another kind. It keeps every message for good: messages must be
// constants, or few.
type LogLimits struct {
	PerSecond int64

	limiters sync.Map // message to *LogLimit
}

// Allow is [LogLimit.Allow] for events with a message.
func (b *LogLimits) Allow(message string) (ok bool, skipped int64) {
	l, found := b.limiters.Load(message)
	if !found {
		l, _ = b.limiters.LoadOrStore(message, &LogLimit{PerSecond: b.PerSecond})
	}
	return l.(*LogLimit).Allow()
}
