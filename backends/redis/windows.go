package redis

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A fixed window that is charged by itself is a whole number (script/constants.lua), so INCRBY can count a unit in it.
// The script makes the number and everything else. A slice needs no script if each of its keys is known to be such a
// number: the script has admitted an op on it, and its window is not over. Redis' TIME, in the same pipeline, says at
// which instant the slice is decided. On a Cluster each node gets a pipeline of its own (trips.go), as soon as a call
// of the script has shown that it has the key.
//
// Only admissions are decided here. What has no room, or meets anything unusual (a key that is gone, a window that
// is over, a server that is full), is given back, and the script decides it: it alone refuses. Until then a request
// elsewhere may find a unit more than there is, but only if that one has no room either, unless their limits differ.

// Numbers of windows, as in script/constants.lua.
const (
	firstStart  = 100_000_000
	starts      = 800_000_000
	numberUnits = 10_000_000_000
)

// What limits and ops may have whose units are counted so: a slice adds less than numberUnits.
const (
	mostUnits = numberUnits / 2
	mostCost  = 1 << 20
)

// windows decides slices without the script.
type windows struct{ *counting }

// take decides reqs.
func (w *windows) take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	b := w.batches.Get().(*batch)
	defer w.batches.Put(b)
	b.reset()
	if w.refused.Load() || !w.known(b, reqs) {
		w.byScript(ctx, reqs, out)
		return
	}
	w.add(b, reqs, out)
	w.send(ctx, b)
	b.decide(reqs, out, admits)
	if len(b.odd) == 0 {
		return
	}
	for _, o := range b.odd {
		for _, k := range o.counters {
			w.ends.keep(k.hash, 0)
		}
	}
	again, outs := b.again(b.giveBack(reqs), reqs)
	if n := len(again) - len(b.odd); w.cluster != nil && n > 0 { // parts of a request must find what is given back
		w.byScript(ctx, again[:n], outs[:n])
		again, outs = again[n:], outs[n:]
	}
	w.byScript(ctx, again, outs)
	b.answer(outs, out)
}

// byScript calls the script for reqs, and learns which keys are numbers now.
func (w *windows) byScript(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	sent := w.ends.now()
	w.script.take(ctx, reqs, out)
	for i := range reqs {
		req, v := &reqs[i], &out[i]
		if v.Err != nil || req.At != 0 {
			continue
		}
		for j := range req.Ops {
			op, o := &req.Ops[j], &v.Outcomes[j]
			if op.Cost > 0 && v.Charged(req.Ops, j) && counts(req, op) {
				w.ends.keep(w.hashOf(op), sent+o.Reset)
			}
		}
	}
}

// counts reports whether INCRBY can admit op.
func counts(req *limit.Request, op *limit.Op) bool {
	l := op.Limit
	return l != nil && (op.Each || len(req.Ops) == 1) && !op.Alternative() && req.At == 0 && op.AsOf == 0 &&
		(op.Cost == 0 || op.Cost == 1 || op.Cost > 1 && op.Cost <= mostCost && l.Below() == 0) &&
		l.Algorithm() == limit.FixedWindow && !l.Calendar() && l.Below() <= 0 && l.Capacity() < mostUnits &&
		l.Window()%time.Second == 0
}

// hashOf returns the hash of an op's key and window. A key may expire before a window that is longer than the one that
// has made it.
func (w *windows) hashOf(op *limit.Op) uint64 {
	return maphash.String(w.ends.seed, op.Key.Group) ^ 3*maphash.String(w.ends.seed, op.Key.Limit) ^
		uint64(op.Limit.Window())
}

// known reports whether all keys are known to be numbers, and notes their hashes.
func (w *windows) known(b *batch, reqs []limit.Request) bool {
	soon := w.ends.now() + time.Millisecond
	for i := range reqs {
		req := &reqs[i]
		for j := range req.Ops {
			op := &req.Ops[j]
			if !counts(req, op) {
				return false
			}
			hash := w.hashOf(op)
			if !w.ends.after(hash, soon) {
				return false
			}
			b.hashes = append(b.hashes, hash)
		}
		if w.caps.CheckRequest(req) != nil {
			return false
		}
	}
	return true
}

// add gathers what requests add to each counter.
func (w *windows) add(b *batch, reqs []limit.Request, out []limit.Verdict) {
	n := 0
	for i := range reqs {
		out[i].Reset(len(reqs[i].Ops))
		for j := range reqs[i].Ops {
			op := &reqs[i].Ops[j]
			from := len(b.text)
			b.text = w.appendKey(b.text, op, 0)
			k := b.counter(from, b.hashes[n])
			n++
			k.op = op
			k.trip, k.slot = w.tripOf(b, op, 0)
			k.total += op.Cost
			b.ops = append(b.ops, k)
		}
	}
}

// send sends what the slice needs, in one pipeline to each server, and reads the replies.
func (w *windows) send(ctx context.Context, b *batch) {
	text, trips := string(b.text), b.trips[:b.going]
	for _, t := range trips {
		t.add(t.clock)
	}
	for _, k := range b.counters[:b.used] {
		k.key = text[k.from:k.to]
		if k.total == 0 {
			k.trip.add(k.get)
		} else {
			k.trip.add(k.incr)
		}
	}
	w.counted.Add(1)
	w.goAll(ctx, b)
	for _, t := range trips {
		now, err := t.clock.Result()
		t.at = 0
		if err == nil {
			t.at = w.whole(limit.InstantOf(now))
		}
	}
	for _, k := range b.counters[:b.used] {
		w.readWindow(k)
		if k.state == counted && k.trip.at == 0 {
			k.state = odd
		}
	}
}

// readWindow reads a reply: what was counted before, and in which window near its server's time.
func (w *windows) readWindow(k *counter) {
	k.state, k.err = counted, nil
	number, err := k.before()
	if err != nil {
		w.failed(k, err)
		return
	}
	start := number/numberUnits - firstStart
	if number < 0 || start < 0 || start >= starts {
		k.state, k.start = odd, 0 // the key has gone, and INCRBY has made one that the script writes anew
		return
	}
	k.count = number % numberUnits
	second := int64(k.trip.at) / 1e6
	ahead := (start-second%starts+starts+starts/2)%starts - starts/2
	k.start = limit.Instant(second+ahead) * 1e6
}

// admits is a decider. It reports whether a request is admitted with all that it asks for.
func admits(req *limit.Request, v *limit.Verdict, counters []*counter) bool {
	v.Admitted = true
	for j, k := range counters {
		op, at := &req.Ops[j], k.trip.at
		v.At = at
		if k.start != at-at%limit.Instant(op.Limit.Window().Microseconds()) {
			return false
		}
		k.decide(op, op.Limit.WindowEnd(at).Sub(at), &v.Outcomes[j])
		if !v.Outcomes[j].Admitted {
			return false
		}
	}
	return true
}

// giveBack returns requests that give back what odd requests have added.
func (b *batch) giveBack(reqs []limit.Request) (list []limit.Request) {
	for _, o := range b.odd {
		for j, k := range o.counters {
			k.back -= reqs[o.at].Ops[j].Cost
		}
	}
	for _, k := range b.counters[:b.used] {
		if k.back < 0 && k.err == nil && k.start != 0 {
			op := limit.Op{Key: k.op.Key, Limit: k.op.Limit, Cost: k.back, AsOf: k.start}
			list = append(list, limit.Request{Ops: []limit.Op{op}})
		}
	}
	return list
}
