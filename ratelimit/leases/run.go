package leases

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Join learns what other replicas know: the secret that signs tokens, the
// proxies, and how many requests are in flight. An error means that the registry
// or the backend failed and leases need them; [Tracker.Run] tries again.
func (t *Tracker) Join(ctx context.Context) error {
	if t.conf.Registry == nil {
		return nil
	}
	err := t.exchangePresence(ctx)
	if err == nil {
		err = t.refreshCounts(ctx)
	}
	if t.idle() {
		return nil
	}
	return err
}

// idle reports whether no rule grants leases and nobody has one: what fails then is missed by nobody.
func (t *Tracker) idle() bool { return t.longestLife() == 0 && t.owners.count() == 0 }

// Run works in the background until ctx ends. It agrees with other replicas on
// the secret that signs tokens and on which proxies are present, counts requests
// in flight, and ends the leases of proxies that are gone.
func (t *Tracker) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if t.conf.Registry != nil {
		running.Add(1)
		t.conf.Panics.Go("presence", func() {
			defer running.Done()
			t.repeat(ctx, func(uint64) error { return t.exchangePresence(ctx) })
		})
	}
	// On its own: presence must be reported however long this takes.
	t.repeat(ctx, func(round uint64) error { return t.tend(ctx, round) })
}

// repeat calls f in each round, and logs errors.
func (t *Tracker) repeat(ctx context.Context, f func(round uint64) error) {
	tick := time.NewTicker(t.every())
	defer tick.Stop()
	for round := uint64(0); ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var err error
		if panicked := t.conf.Panics.Do("presence", func() { err = f(round) }); panicked != nil {
			err = panicked
		}
		if err != nil && ctx.Err() == nil {
			t.failedRounds.Add(1)
			if t.idle() {
				continue // the log of an outage needs no line about what nobody uses
			}
			t.warn("cannot use the registry of requests in flight; until then headgate notices no proxies that are gone",
				"error", err)
		}
	}
}

// maxTending bounds a round that ends leases; the next round continues.
const maxTending = 30 * time.Second

// tend ends the leases of proxies that are gone, and sometimes reads how many
// requests are in flight.
func (t *Tracker) tend(ctx context.Context, round uint64) error {
	t.mu.Lock()
	gone := t.gone
	t.gone = nil
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, max(maxTending, 2*t.conf.OwnerGrace))
	defer cancel()
	if len(gone) == 0 && round%roundsPerRefresh != 0 {
		return t.putKeys(ctx)
	}
	unknown := t.refreshCounts(ctx)
	err := unknown
	for _, o := range gone {
		err = cmp.Or(err, t.reap(ctx, o, unknown == nil))
	}
	return err
}
