package redis

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/limit"
)

// A trip is what one server is asked without the script. A slice takes one trip, on a Cluster one to each node that
// has some of its keys. Calls of the script show which node has a key. A node declines a key that it does not have,
// and the script decides. It also decides on a key whose node is unknown. The driver's own pipeline for a Cluster
// finds nodes by itself, but could send a command twice.
type trip struct {
	node  *node // of a Cluster; nil: unknown
	cmds  []redis.Cmder
	clock *redis.TimeCmd // of windows
	at    limit.Instant  // its time; 0: unknown
}

func (t *trip) add(cmds ...redis.Cmder) { t.cmds = append(t.cmds, cmds...) }

// tripOf returns the trip of the batch to the server of op at an instant, and on a Cluster the slot of its key.
func (c *counting) tripOf(b *batch, op *limit.Op, at limit.Instant) (t *trip, slot int) {
	var n *node
	if c.cluster != nil {
		slot = c.slotOf(op, at)
		n = c.nodes.owners.bySlot[slot].Load()
	}
	for _, t := range b.trips[:b.going] {
		if t.node == n {
			return t, slot
		}
	}
	if b.going == len(b.trips) {
		b.trips = append(b.trips, &trip{clock: redis.NewTimeCmd(context.Background(), "time")})
	}
	t = b.trips[b.going]
	b.going++
	t.node, t.cmds = n, t.cmds[:0]
	return t, slot
}

// goAll makes the trips of a batch that have commands, all at once. Each command gets a reply or an error.
func (c *counting) goAll(ctx context.Context, b *batch) {
	var others sync.WaitGroup
	trips := b.trips[:b.going]
	defer func() {
		others.Wait()
		for _, t := range trips {
			t.cmds = t.cmds[:0]
		}
	}()
	for i, t := range trips {
		switch {
		case len(t.cmds) == 0:
		case i == len(trips)-1:
			c.goTo(ctx, t)
		default:
			others.Add(1)
			c.cfg.Panics.Go("redis", func() {
				defer others.Done()
				if err := c.cfg.Panics.Do("redis", func() { c.goTo(ctx, t) }); err != nil {
					t.fail(err)
				}
			})
		}
	}
}

// errNoOwner is the error of a key whose node is unknown.
var errNoOwner = errors.New("no call has shown which node has the key")

func (c *counting) goTo(ctx context.Context, t *trip) {
	if c.cluster == nil {
		_ = pipelined(ctx, c.client, t.cmds)
	} else if t.node == nil {
		t.fail(&dialError{errNoOwner})
	} else if err := t.node.guard(ctx, func() error { return pipelined(ctx, t.node.client, t.cmds) }); isAway(err) {
		t.fail(err)
	} else if !answers(err) {
		c.reload(ctx) // who is master may have changed
	}
}

// fail gives each command of the trip an error.
func (t *trip) fail(err error) {
	for _, cmd := range t.cmds {
		cmd.SetErr(err)
	}
}

// pipelined sends commands in one pipeline. Each has its own error, too.
func pipelined(ctx context.Context, server redis.UniversalClient, cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		cmd.SetErr(nil) // after a failure the driver keeps the errors that commands have already
	}
	pipe := server.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	return err
}
