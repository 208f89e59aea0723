package leases

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
)

// A panicking registry stands for any mistake in what is done in the background.
type panicking struct {
	backends.Registry
	calls atomic.Int64
}

func (p *panicking) Claim(context.Context, string, string, time.Duration) (string, error) {
	p.calls.Add(1)
	panic("burst pipe")
}

// TestPanicInBackgroundIsNoEnd: the rounds go on after a panic, which counts as
// a failure.
func TestPanicInBackgroundIsNoEnd(t *testing.T) {
	broken := new(panicking)
	f := newFleet(t, 1)
	m := f.members[0]
	m.conf.Registry, m.conf.OwnerGrace = broken, 40*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	f.eventually("it is tried again", func() bool { return broken.calls.Load() > 2 })
	cancel()
	<-done
	if m.Stats().Failures < 2 {
		t.Errorf("%d failures are counted", m.Stats().Failures)
	}
}
