package redis

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/limit"
)

// A trip is what one server is asked for a slice of windows, and when it answered by its own clock. A slice takes
// one trip, or on a Cluster one for each node that has some of its keys.
type trip struct {
	node  *node // nil: the only server
	cmds  []redis.Cmder
	clock *redis.TimeCmd // the first of cmds
	at    limit.Instant
}

// trip returns that of the batch to a node.
func (b *batch) trip(n *node) *trip {
	for _, t := range b.trips[:b.going] {
		if t.node == n {
			return t
		}
	}
	if b.going == len(b.trips) {
		b.trips = append(b.trips, &trip{clock: redis.NewTimeCmd(context.Background(), "time")})
	}
	t := b.trips[b.going]
	b.going++
	t.node, t.cmds = n, append(t.cmds[:0], t.clock)
	return t
}

// fail has each command of the trip fail.
func (t *trip) fail(err error) {
	for _, cmd := range t.cmds {
		cmd.SetErr(err)
	}
}

// goAll makes the trips of a batch, all at once.
func (w *windows) goAll(ctx context.Context, trips []*trip) {
	if len(trips) == 0 {
		return
	}
	w.counted.Add(int64(len(trips)))
	var others sync.WaitGroup
	for _, t := range trips[1:] {
		others.Add(1)
		w.cfg.Panics.Go("redis", func() {
			defer others.Done()
			if err := w.cfg.Panics.Do("redis", func() { w.goTo(ctx, t) }); err != nil {
				t.fail(err)
			}
		})
	}
	w.goTo(ctx, trips[0])
	others.Wait()
}

// goTo makes a trip. Each of its commands gets a reply or an error.
func (w *windows) goTo(ctx context.Context, t *trip) {
	if t.at = 0; t.node == nil {
		_ = pipelined(ctx, w.client, t.cmds)
	} else if err := t.node.guard(ctx, func() error { return pipelined(ctx, t.node.client, t.cmds) }); isAway(err) {
		t.fail(err)
	} else if !answers(err) {
		w.reload(ctx) // who is master may have changed
	}
	if now, err := t.clock.Result(); err == nil {
		t.at = w.whole(limit.InstantOf(now))
	}
}
