package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend is one or more Redis servers.
type Backend struct {
	*servers
	*packer
	refunds refunds
	counts  taker     // what needs no script; nil: the script decides all
	scratch sync.Pool // of *scratch
}

// A taker decides requests. A Backend is one that has the script decide all.
type taker interface {
	take(ctx context.Context, reqs []limit.Request, out []limit.Verdict)
}

var (
	_ backends.Backend     = (*Backend)(nil)
	_ backends.Registrar   = (*Backend)(nil)
	_ backends.Partitioned = (*Backend)(nil)
	_ backends.Prober      = (*Backend)(nil)
)

// Open makes a backend from c. It connects when it is first used, so a server
// that is away now is no error; a configuration that cannot work is.
func Open(_ context.Context, c Config, log *slog.Logger) (*Backend, error) {
	p, err := newPacker(&c)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	s, err := newServers(c, log)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	b := &Backend{servers: s, packer: p, refunds: refunds{servers: s, packer: p}}
	if c.Now != nil {
		counts := newCounting(s, p, b)
		b.counts = counts
		if !p.windows {
			b.counts, p.numbers = &windows{counts}, true
		}
	}
	b.scratch.New = func() any { return &scratch{} }
	return b, nil
}

// Caps returns what b promises.
func (b *Backend) Caps() backends.Caps { return b.caps }

// Servers implements [backends.Partitioned], for a Cluster.
func (b *Backend) Servers() func(req *limit.Request) uint64 {
	if b.cluster == nil {
		return nil
	}
	return func(req *limit.Request) uint64 { return b.nodes.owners.of(&b.keys, req) }
}

// Take implements [backends.Backend].
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	out = out[:len(reqs)]
	if err := ctx.Err(); err != nil {
		backends.Fail(out, mapped(err, false))
		return
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if err := b.ready(ctx); err != nil {
		backends.Fail(out, err)
		return
	}
	if b.counts != nil {
		b.counts.take(ctx, reqs, out)
		return
	}
	b.take(ctx, reqs, out)
}

// take decides by the script alone.
func (b *Backend) take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	s := b.scratch.Get().(*scratch)
	defer b.scratch.Put(s)
	s.used = 0
	if b.cluster != nil || b.apart.Load() {
		b.takeSplit(ctx, s, reqs, out)
		return
	}
	b.place(s, reqs, out, nil)
	b.decide(ctx, b.packer, s, reqs)
	b.collect(s, reqs, out)
}

// Forget implements [backends.Backend].
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	if err := ctx.Err(); err != nil {
		return mapped(err, false)
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	const most = 256 // commands in a pipeline
	if b.windows {
		return b.forgetWindows(ctx, keys)
	}
	for some := range slices.Chunk(keys, most) {
		if err := b.forget(ctx, some); err != nil {
			return mapped(err, true)
		}
	}
	return nil
}

func (b *Backend) forget(ctx context.Context, keys []limit.Key) error {
	pipe := b.client.Pipeline()
	for _, k := range keys {
		pipe.Unlink(ctx, b.ownKey(k))
		if b.isShared(&k, nil) {
			pipe.Unlink(ctx, string(b.shared(&b.keys, nil, k.Group)))
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// forgetApart is forgetWindows where no server can say which keys there are. It forgets the windows of this moment.
func (b *Backend) forgetApart(ctx context.Context, keys []limit.Key) error {
	now, pipe := limit.InstantOf(b.cfg.Now()), b.client.Pipeline()
	for i := range keys {
		base := string(b.appendBase(nil, &keys[i], nil))
		for _, window := range windowsOfEnvoy {
			start := now - now%limit.Instant(window.Microseconds())
			pipe.Unlink(ctx, base+strconv.FormatInt(int64(start)/1e6, 10))
		}
	}
	_, err := pipe.Exec(ctx)
	return mapped(err, true)
}

// forgetWindows is Forget where windows have keys of their own: it looks for them among all
// keys that there are, as nobody says which windows there were.
func (b *Backend) forgetWindows(ctx context.Context, keys []limit.Key) error {
	if b.apart.Load() && b.cfg.Now != nil {
		return b.forgetApart(ctx, keys)
	}
	bases := make(map[string]bool, len(keys))
	for i := range keys {
		bases[string(b.appendBase(nil, &keys[i], nil))] = true
	}
	err := eachMaster(ctx, b.client, func(ctx context.Context, node *redis.Client) error {
		for it := node.Scan(ctx, 0, "", 1000).Iterator(); ; {
			if !it.Next(ctx) {
				return it.Err()
			}
			if key := it.Val(); bases[strings.TrimRight(key, "0123456789")] {
				if err := node.Unlink(ctx, key).Err(); err != nil {
					return err
				}
			}
		}
	})
	return mapped(err, true)
}

// Ping implements [backends.Backend] by a Take on keys of its own: one for each master of a Cluster. One server gets
// two, of different slots: a node of a Cluster, which would decide only what is in its slots, refuses them.
func (b *Backend) Ping(ctx context.Context) error { return b.explained(b.pingMasters(ctx)) }

// explained adds to err what an operator might look at.
func (b *Backend) explained(err error) error {
	var late net.Error                                        // of this call or of the handshake, whichever ends first
	if b.cfg.TLS && errors.As(err, &late) && late.Timeout() { // a Redis without TLS waits for the end of a line
		err = fmt.Errorf("%w (the URL asks for TLS: does the port speak it?)", err)
	}
	return err
}

func (b *Backend) pingMasters(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return mapped(err, false)
	}
	if _, ok := ctx.Deadline(); !ok { // else it is the caller's: a slow Redis may take that long to connect and to answer
		var cancel context.CancelFunc
		ctx, cancel = b.bounded(ctx)
		defer cancel()
	}
	p := b.probed.Load()
	if p == nil || p.err != nil {
		if err := b.examine(ctx); err != nil {
			return err
		}
		return b.pingEach(ctx)
	}
	err := b.pingEach(ctx)
	// What is known is asked again in the time that is left. A slow Redis is asked by the next Ping again.
	if found := b.examine(ctx); missing(found) == hasStruct || missing(found) == isOne {
		return found
	}
	return err
}

// pingEach asks each server for a decision.
func (b *Backend) pingEach(ctx context.Context) error {
	groups, slotOf := []string{"ping", "ping0"}, func(*limit.Request) int { return 0 }
	if b.apart.Load() {
		slotOf = b.requestSlot
	}
	if b.cluster != nil {
		slotOf = b.requestSlot
		var err error
		if groups, err = b.groupsOfMasters(ctx); err != nil {
			return err
		}
	}
	reqs := make([]limit.Request, len(groups))
	out := make([]limit.Verdict, len(groups))
	for i, g := range groups {
		if !b.caps.ServerClock {
			reqs[i].At = 1 // any
		}
		reqs[i].Ops = []limit.Op{{Key: limit.Key{Group: g, Limit: "ping"}, Limit: b.ping, Cost: -1}}
	}
	s := &scratch{}
	b.place(s, reqs, out, slotOf)
	b.run(ctx, s.calls[:s.used])
	b.collect(s, reqs, out)
	for i := range out {
		if err := out[i].Err; err != nil && !errors.Is(err, backends.ErrLater) { // else a later version pings here, too
			return err
		}
	}
	return nil
}

// Close implements [backends.Backend]. It waits until refunds are done, but no
// longer than for a call.
func (b *Backend) Close() error {
	b.refunds.close(b.cfg.Timeout)
	return b.stop()
}
