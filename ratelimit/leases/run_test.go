package leases

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// An away registry is that of a store that does not answer.
type away struct {
	backends.Registry
	calls atomic.Int64
}

func (a *away) Claim(context.Context, string, string, time.Duration) (string, error) {
	a.calls.Add(1)
	return "", backends.ErrUnavailable
}

// TestFailuresThatNobodyMissesAreNotLogged: while no rule grants leases, a registry that does not
// answer is not in the log. Once one does, it is.
func TestFailuresThatNobodyMissesAreNotLogged(t *testing.T) {
	for _, longest := range []time.Duration{0, fleetLife} {
		f, broken := newFleet(t, 1), new(away)
		m := f.members[0]
		m.SetLongest(longest)
		m.conf.Registry, m.conf.OwnerGrace = broken, 40*time.Millisecond
		ctx, cancel := context.WithCancel(context.Background())
		if err := m.Join(ctx); (err != nil) != (longest > 0) {
			t.Errorf("leases live for %s: to join fails with %v", longest, err)
		}
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		f.eventually("it is tried again", func() bool { return broken.calls.Load() > 3 })
		cancel()
		<-done
		if log := m.log.String(); strings.Contains(log, "registry") != (longest > 0) || m.Stats().Failures < 2 {
			t.Errorf("leases live for %s: %d failures are counted, and the log is\n%s", longest, m.Stats().Failures, log)
		}
	}
}

// TestRunEndsLeasesOfGoneProxy: what is due in each round, Run does, from presence to the end of leases.
func TestRunEndsLeasesOfGoneProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		for _, m := range f.members {
			go m.Run(ctx)
		}
		pass := func(d time.Duration) {
			for range d / time.Second {
				time.Sleep(time.Second)
				synctest.Wait()
				f.now.pass(time.Second)
			}
		}
		renew, hangUp := f.members[0].openLog(f.members[0].ask(envoy1, "x"))
		pass(fleetGrace)
		renew()
		f.want(1, "it is there")
		hangUp()
		pass(goneWithIt)
		f.want(0, "it is gone")
		var log strings.Builder
		for _, m := range f.members {
			log.WriteString(m.log.String())
		}
		if strings.Count(log.String(), "proxy gone") != 1 {
			t.Errorf("the log: %s", &log)
		}
	})
}
