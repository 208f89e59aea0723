package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// With layout=envoy one INCRBY answers an op that is charged by itself and counts what it refuses. A pipeline of
// these takes Redis an eighth to a third of the time of the script. So slices of such ops need no script.
//
// Every key must expire. If this process does not know that a key has an expiry, the pipeline creates the key with
// SET NX PX, counts, and reads its PTTL. If the process dies in between, no key is left without an expiry. A known
// expiry is trusted: programs that share counters do not shorten it.
//
// If a request meets something unusual, such as a value that is no count, a key without an expiry, or a server that
// is full or read-only, its counts are undone and the script decides it: only the script handles such cases. Later
// requests that share a key with it go to the script, too, so that their order stays.

// A counting decides slices without the script.
type counting struct {
	*servers
	*packer
	script  taker
	ends    *ends
	refused atomic.Bool // the server knows no such command, or its user may not use it
	batches sync.Pool   // of *batch
}

func newCounting(s *servers, p *packer, script taker) *counting {
	c := &counting{servers: s, packer: p, script: script, ends: newEnds(s.cfg.Now)}
	c.batches.New = func() any { return newBatch() }
	return c
}

// serves reports whether a slice can be decided without the script. The script decides the first slice with an
// instant, because its answer has the time of Redis.
func (c *counting) serves(reqs []limit.Request) bool {
	return c.compared.Load() && !c.refused.Load() && !slices.ContainsFunc(reqs, needsScript)
}

func needsScript(req limit.Request) bool {
	for i := range req.Ops {
		op := &req.Ops[i]
		alone := op.Each || len(req.Ops) == 1
		if !alone || op.Cost < 0 || op.Cost > math.MaxUint32 || op.Limit == nil || op.Cost > 0 && op.Limit.Below() != 0 {
			return true
		}
	}
	return false
}

// A batch is a slice that is being counted. Its memory is used again.
type batch struct {
	counters []*counter
	used     int
	at       map[uint64]*counter // by hash
	hashes   []uint64            // of the keys of all ops, in order; of windows
	ops      []*counter          // of all valid requests, in order
	text     []byte              // of all keys
	trips    []*trip
	going    int // of trips
	odd      []oddRequest
}

func newBatch() *batch { return &batch{at: map[uint64]*counter{}} }

func (b *batch) reset() {
	clear(b.at)
	b.used, b.going, b.hashes, b.ops, b.text, b.odd = 0, 0, b.hashes[:0], b.ops[:0], b.text[:0], b.odd[:0]
}

// An oddRequest is one that the script has to decide.
type oddRequest struct {
	at       int
	counters []*counter // of its ops
}

// take decides reqs, and has the script decide those that it cannot.
func (c *counting) take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if !c.serves(reqs) {
		c.script.take(ctx, reqs, out)
		return
	}
	b := c.batches.Get().(*batch)
	defer c.batches.Put(b)
	b.reset()
	c.add(b, reqs, out)
	c.send(ctx, b)
	b.decide(reqs, out, c.saturates)
	if len(b.odd) == 0 {
		return
	}
	c.undo(ctx, b, reqs, out)
	again, outs := b.again(nil, reqs)
	c.script.take(ctx, again, outs)
	b.answer(outs, out)
}

// again returns the odd requests behind others, and where their verdicts go.
func (b *batch) again(all, reqs []limit.Request) ([]limit.Request, []limit.Verdict) {
	for _, o := range b.odd {
		all = append(all, reqs[o.at])
	}
	return all, make([]limit.Verdict, len(all))
}

// answer copies the verdicts of odd requests from the end of outs.
func (b *batch) answer(outs, out []limit.Verdict) {
	outs = outs[len(outs)-len(b.odd):]
	for j, o := range b.odd {
		out[o.at] = outs[j]
	}
}

// add gathers what the valid requests add to each counter.
func (c *counting) add(b *batch, reqs []limit.Request, out []limit.Verdict) {
	wall, jitter := limit.InstantOf(c.cfg.Now()), time.Duration(0)
	if c.jitter > 0 {
		jitter = time.Duration(rand.IntN(c.jitter)) * time.Second
	}
	for i := range reqs {
		req := &reqs[i]
		out[i].Reset(len(req.Ops))
		if err := c.caps.CheckRequest(req); err != nil {
			out[i].Fail(err)
			continue
		}
		at := c.told(req.At)
		for j := range req.Ops {
			op := &req.Ops[j]
			from, window := len(b.text), op.Limit.Window()
			b.text = c.appendKey(b.text, op, at)
			k := b.counter(from, c.ends.hash(b.text[from:]))
			k.trip, k.slot = c.tripOf(b, op, at)
			// The instant is in whole seconds, and may run at a pace of its own: see put in envoy.lua.
			need := op.Limit.WindowEnd(at).Sub(min(wall, at+c.step))
			k.need = max(k.need, need)
			k.life = max(k.life, max(window+jitter, need).Milliseconds()+1)
			k.total += op.Cost
			b.ops = append(b.ops, k)
		}
	}
}

// counter returns that of the key that the text has from there on. Ops with one key share it.
func (b *batch) counter(from int, hash uint64) *counter {
	if k := b.at[hash]; k != nil && bytes.Equal(b.text[k.from:k.to], b.text[from:]) {
		b.text = b.text[:from]
		return k
	}
	if b.used == len(b.counters) {
		b.counters = append(b.counters, newCounter())
	}
	k := b.counters[b.used]
	b.used++
	k.from, k.to, k.hash, k.total, k.need, k.life, k.back = from, len(b.text), hash, 0, 0, 0, 0
	b.at[hash] = k
	return k
}

// send sends what the slice needs, in one pipeline to each server, and reads the replies.
func (c *counting) send(ctx context.Context, b *batch) {
	sent := b.commands(c.ends)
	c.counted.Add(1)
	c.goAll(ctx, b)
	for _, k := range b.counters[:b.used] {
		c.read(k, sent)
		if k.gone() {
			k.trip.add(k.end)
		}
	}
	c.goAll(ctx, b)
	for _, k := range b.counters[:b.used] {
		if err := k.end.Err(); k.gone() && err != nil {
			k.state, k.err = lost, err
		}
	}
}

// commands gathers the commands, and returns when.
func (b *batch) commands(e *ends) time.Duration {
	now, text := e.now(), string(b.text)
	for _, k := range b.counters[:b.used] {
		k.key, k.known = text[k.from:k.to], e.after(k.hash, now+k.need)
		switch {
		case k.total == 0:
			k.trip.add(k.get)
		case k.known:
			k.trip.add(k.incr)
		default:
			k.trip.add(k.make, k.incr, k.left)
		}
	}
	return now
}

// exact is the largest count that the script changes.
const exact = 1 << 52

// read reads the replies about a counter of a pipeline sent then.
func (c *counting) read(k *counter, sent time.Duration) {
	var err error
	k.state, k.err = counted, nil
	if k.count, err = k.before(); err != nil {
		c.failed(k, err)
		return
	}
	if k.count < 0 || k.count > exact-k.total {
		k.state = odd
	}
	if k.known || k.total == 0 {
		return
	}
	left, err := k.left.Result()
	switch lives := time.Duration(left) * time.Millisecond; {
	case err != nil && !declined(err): // the connection is broken, but a new key was created with an expiry
	case err == nil && left > 0 && lives >= k.need-(c.ends.now()-sent):
		c.ends.keep(k.hash, sent+lives)
	default:
		k.state = odd
		c.note(err)
	}
}

// failed notes why nothing is known to be added to k.
func (c *counting) failed(k *counter, err error) {
	k.state, k.err = lost, err
	if declined(err) {
		k.state = odd
		c.note(err)
	} else if k.trip.node != nil {
		c.nodes.owners.bySlot[k.slot].Store(nil) // unknown, until the next call of the script
	}
}

// declined reports whether err means that a command has changed nothing.
func declined(err error) bool {
	return errors.As(err, new(redis.Error)) || errors.Is(mapped(err, false), backends.ErrNotApplied)
}

// note makes the script decide everything from now on if err says that one of the commands cannot be used.
func (c *counting) note(err error) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return
	}
	text := reply.Error()
	noCommand := strings.HasPrefix(text, "ERR unknown command") ||
		strings.HasPrefix(text, "NOPERM") && strings.Contains(text, "command")
	if noCommand && !c.refused.Swap(true) {
		c.log.Warn("Redis refuses a command that saves it work; until the next start a script counts",
			"remedy", "give the Redis user +incrby +pttl +pexpire", "error", err)
	}
}

// unknown returns err as that of a request that may have been recorded, whatever the last command has done.
func unknown(err error) error {
	err = mapped(err, true)
	return fmt.Errorf("%w: %v", kindOf(err), err)
}

// A decider decides a request whose counters have all counted, and reports whether it can.
type decider func(req *limit.Request, v *limit.Verdict, counters []*counter) bool

// saturates is a decider: what has no room has been counted all the same.
func (c *counting) saturates(req *limit.Request, v *limit.Verdict, counters []*counter) bool {
	v.At, v.Admitted = c.whole(req.At), true
	for j, k := range counters {
		op, out, at := &req.Ops[j], &v.Outcomes[j], c.told(req.At)
		k.decide(op, op.Limit.WindowEnd(at).Sub(at), out)
		v.Admitted = v.Admitted && (out.Admitted || op.Shadow)
	}
	return true
}

// decide fills the verdicts of requests whose counters have all counted, and gathers those that are odd.
func (b *batch) decide(reqs []limit.Request, out []limit.Verdict, decides decider) {
	ops := b.ops
	for i := range reqs {
		req, v := &reqs[i], &out[i]
		if v.Err != nil {
			continue
		}
		counters := ops[:len(req.Ops)]
		ops = ops[len(req.Ops):]
		worst := counters[0]
		for _, k := range counters {
			if k.state > worst.state {
				worst = k
			}
		}
		switch {
		case worst.state == lost:
			v.Fail(unknown(worst.err))
			for j, k := range counters {
				k.count += req.Ops[j].Cost // later requests find what was added
			}
		case worst.state == odd || !decides(req, v, counters):
			b.odd = append(b.odd, oddRequest{i, counters})
			for _, k := range counters {
				k.state = max(k.state, odd) // the script decides later requests, too
			}
		}
	}
}

// undo subtracts what odd requests have added. A request that cannot be undone fails.
func (c *counting) undo(ctx context.Context, b *batch, reqs []limit.Request, out []limit.Verdict) {
	for _, o := range b.odd {
		for j, k := range o.counters {
			cost := reqs[o.at].Ops[j].Cost
			if k.err == nil && k.back == 0 && cost > 0 {
				k.trip.add(k.undo)
			}
			k.back -= cost
		}
	}
	c.goAll(ctx, b)
	b.odd = slices.DeleteFunc(b.odd, func(o oddRequest) bool {
		for _, k := range o.counters {
			if err := k.undo.Err(); k.err == nil && k.back < 0 && err != nil {
				out[o.at].Fail(unknown(err))
				return true
			}
		}
		return false
	})
}
