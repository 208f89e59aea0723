package unary

import (
	"testing"
	"time"
)

// TestFloodsLeaveACore: as many connections as may ask for much at a time do; more take turns in the places there are.
func TestFloodsLeaveACore(t *testing.T) {
	const cores = 2
	var f floods
	f.init(cores)
	for range freeFloods * cores {
		if f.enter() {
			t.Fatal("one of few takes a place")
		}
	}
	if !f.enter() {
		t.Fatal("one of many takes no place")
	}
	waits := make(chan bool)
	go func() { waits <- f.enter() }()
	select {
	case <-waits:
		t.Error("two of many are handled at once on two cores")
	case <-time.After(50 * time.Millisecond):
	}
	f.leave(true)
	if !<-waits {
		t.Error("who has waited has no place")
	}
	f.leave(true)
	for range freeFloods * cores {
		f.leave(false)
	}
	if n := f.active.Load(); n != 0 || len(f.places) != 0 {
		t.Errorf("%d are active and %d places taken", n, len(f.places))
	}
}
