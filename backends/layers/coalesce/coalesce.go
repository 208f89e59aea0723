package coalesce

import (
	"context"
	"fmt"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend gathers takes for another one.
type Backend struct {
	*shared
	lanes []lane
}

var _ backends.Backend = (*Backend)(nil)

// maxLanes bounds the lanes of a store of several servers. Two is a primitive
// root of this prime, so the sets of one server have 64 different lanes, and so
// have all sets of up to six servers.
const maxLanes = 67

// New returns a backend that gathers takes for next and closes it with itself.
func New(next backends.Backend, cfg Config) *Backend {
	cfg.setDefaults()
	b := &Backend{shared: &shared{next: next, cfg: cfg}, lanes: make([]lane, 1)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if cfg.Servers != nil {
		b.lanes = make([]lane, maxLanes)
	}
	for i := range b.lanes {
		l := &b.lanes[i]
		l.shared, l.idle.L = b.shared, &l.mu
	}
	return b
}

// lane returns the lane of those who wait for a set of servers.
func (b *Backend) lane(set uint64) *lane {
	if set == backends.AnyServer {
		return &b.lanes[0]
	}
	return &b.lanes[set%uint64(len(b.lanes))]
}

// Take sends reqs on, alone or with those of other callers.
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	out = out[:len(reqs)]
	switch {
	case len(reqs) == 0:
	case ctx.Err() != nil:
		backends.Fail(out, b.noTurn(ctx))
	case b.cfg.Servers == nil:
		b.lanes[0].take(ctx, reqs, out)
	case len(reqs) == 1:
		b.lane(b.servers(&reqs[0])).take(ctx, reqs, out)
	default:
		b.takeApart(ctx, reqs, out)
	}
}

// servers returns those that decide a request. One without ops is theirs to refuse.
func (b *Backend) servers(req *limit.Request) uint64 {
	if set := b.cfg.Servers(req); set != 0 {
		return set
	}
	return backends.AnyServer
}

// takeApart sends requests that wait for different servers apart from each other.
func (b *Backend) takeApart(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	var memory1, memory2 [64]uint64
	sets, apart := memory1[:0], memory2[:0]
	for i := range reqs {
		sets = append(sets, b.servers(&reqs[i]))
		apart = separate(apart, sets[i])
	}
	if len(apart) == 1 {
		b.lane(apart[0]).take(ctx, reqs, out)
		return
	}
	var sent []*call
	for _, set := range apart {
		c := newCall(ctx, out)
		c.copy(reqs, func(i int) bool { return sets[i]&set != 0 })
		if b.lane(set).join(c) {
			sent = append(sent, c)
		}
	}
	for _, c := range sent {
		c.await()
	}
}

// separate adds a set to sets that have no server in common, and keeps it so: keys of
// requests can meet only where servers do, and then the order of the requests counts.
func separate(sets []uint64, set uint64) []uint64 {
	kept := sets[:0]
	for _, s := range sets {
		if s&set == 0 {
			kept = append(kept, s)
		} else {
			set |= s
		}
	}
	return append(kept, set)
}

// Forget passes keys on.
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	return b.next.Forget(ctx, keys)
}

// Ping asks the store.
func (b *Backend) Ping(ctx context.Context) error { return b.next.Ping(ctx) }

// Close fails those who wait, ends the slices under way, and closes the store
// when the last of them is back.
func (b *Backend) Close() error {
	for i := range b.lanes {
		b.lanes[i].close()
	}
	b.cancel()
	for i := range b.lanes {
		b.lanes[i].wait()
	}
	if err := b.next.Close(); err != nil {
		return fmt.Errorf("combine: %w", err)
	}
	return nil
}
