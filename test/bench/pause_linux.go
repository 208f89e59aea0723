package main

import (
	"syscall"
	"time"
)

// pause sleeps for d, to a tenth of a millisecond: Go's own timers may be a
// whole one late.
func pause(d time.Duration) {
	if d > 0 {
		t := syscall.NsecToTimespec(d.Nanoseconds())
		_ = syscall.Nanosleep(&t, nil)
	}
}
