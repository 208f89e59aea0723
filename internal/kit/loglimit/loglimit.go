// Package loglimit bounds how many lines a log gets in a second, so that a flood
// of events does not flood the log.
package loglimit

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Limiter allows PerSecond events in each second. It may be used concurrently.
type Limiter struct {
	PerSecond int64

	second  atomic.Int64
	count   atomic.Int64
	skipped atomic.Int64
}

// Allow reports whether to log an event now, and how many events were skipped
// since the last one that it allowed.
func (l *Limiter) Allow() (ok bool, skipped int64) {
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

// A ByMessage has a [Limiter] for each message, so that many events of one kind
// do not hide another kind. It keeps every message for good: messages must be
// constants, or few.
type ByMessage struct {
	PerSecond int64

	limiters sync.Map // message to *Limiter
}

// Allow is [Limiter.Allow] for events with a message.
func (b *ByMessage) Allow(message string) (ok bool, skipped int64) {
	l, found := b.limiters.Load(message)
	if !found {
		l, _ = b.limiters.LoadOrStore(message, &Limiter{PerSecond: b.PerSecond})
	}
	return l.(*Limiter).Allow()
}
