package batch

import (
	"cmp"
	"iter"
	"slices"

	"github.com/headgate-rls/headgate/limit"
)

// A Batch decides a slice of requests for a store that keeps states elsewhere,
// such as in rows. The store adds the requests, locks and reads what it has under
// [Batch.Keys] in that order, hands it over with [Batch.Put], decides, and writes
// what [Batch.Changed] lists. Requests are decided one after the other, in the
// order in which they were added: each finds what those before it have left.
//
// The zero Batch is empty and ready. It is not safe for concurrent use.
type Batch struct {
	reqs  []*limit.Request
	out   []*limit.Verdict
	keys  []limit.Key // ascending, once sorted
	known map[limit.Key]int
	kept  []kept // in the order of keys
	long  int    // how many of them have logs with parts

	states, scratch []limit.State // of one request
}

// A kept is the state under one key.
type kept struct {
	state   limit.State
	last    *limit.Limit // that of the op that has changed it last
	changed bool
	long    *longLog // if the log has parts: see long_log.go
}

// A Change is a state that a store must write.
type Change struct {
	Key   limit.Key
	State *limit.State
	// Ends is when the state is as good as an unused key: the store may drop it
	// then, and must keep it until then. At once if that is not after the
	// instant of the decision.
	Ends limit.Instant

	long *longLog
}

// Reset empties b and keeps its memory.
func (b *Batch) Reset() {
	clear(b.reqs)
	clear(b.out)
	clear(b.keys)
	clear(b.known)
	clear(b.kept)
	b.reqs, b.out, b.keys, b.kept = b.reqs[:0], b.out[:0], b.keys[:0], b.kept[:0]
	b.long = 0
}

// Add adds a request and where its answer goes. The store must have checked
// it. b uses both until Reset.
func (b *Batch) Add(req *limit.Request, out *limit.Verdict) {
	if b.known == nil {
		b.known = map[limit.Key]int{}
	}
	b.reqs, b.out = append(b.reqs, req), append(b.out, out)
	for i := range req.Ops {
		k := req.Ops[i].Key
		if _, known := b.known[k]; !known {
			b.known[k] = len(b.keys)
			b.keys = append(b.keys, k)
		}
	}
}

// Keys returns each key of the added requests once, ascending by group and
// limit: the order in which all who lock keys must lock them. It belongs to b.
// No request may be added afterwards.
func (b *Batch) Keys() []limit.Key {
	slices.SortFunc(b.keys, func(a, b limit.Key) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Limit, b.Limit))
	})
	for i, k := range b.keys {
		b.known[k] = i
	}
	b.kept = append(b.kept[:0], make([]kept, len(b.keys))...)
	return b.keys
}

// Put says what the store has under Keys()[i]. A key of which it has nothing
// needs no Put.
func (b *Batch) Put(i int, s limit.State) {
	if parts := min(s.M, int64(len(s.Log))); parts > 0 { // no other algorithm has both
		long := &longLog{parts: make([]logPart, parts), tail: s.Log[parts:]}
		for j, r := range s.Log[:parts] {
			long.parts[j] = logPart{last: r.At, units: r.N}
		}
		b.kept[i].long = long
		b.long++
		s.M = 0
	}
	b.kept[i].state = s
}

// PutPart says what the store has of a part, after Put. It reports whether the part is
// one that the log needs or does not have; a part that does not hold what the log says
// is damaged.
func (b *Batch) PutPart(i int, part limit.State) (ok bool) {
	long := b.kept[i].long
	if long == nil {
		return true // left behind by a version that knew no parts
	}
	j, found := slices.BinarySearchFunc(long.parts, part.At,
		func(p logPart, at limit.Instant) int { return int(p.last - at) })
	if !found {
		return true
	}
	p := &long.parts[j]
	if n := len(part.Log); n == 0 || part.Log[n-1].At != part.At || part.N < p.units {
		return false
	}
	records, old := part.Log, part.N-p.units
	for ; old > 0 && old >= records[0].N; records = records[1:] {
		old -= records[0].N
	}
	p.records = records
	return old == 0
}

// Missing lists, by the position of their key in Keys, the parts that have not been put
// and that Decide at this instant needs: by their last instants, in order.
func (b *Batch) Missing(now limit.Instant) (missing map[int][]limit.Instant) {
	if b.long == 0 {
		return nil
	}
	use := map[int]*logUse{}
	for _, req := range b.reqs {
		at := cmp.Or(req.At, now)
		for i := range req.Ops {
			k := b.known[req.Ops[i].Key]
			if b.kept[k].long == nil {
				continue
			}
			if use[k] == nil {
				use[k] = newLogUse(b.kept[k].state.At)
			}
			use[k].add(&req.Ops[i], min(max(at, 0), limit.MaxInstant))
		}
	}
	for k, u := range use {
		if needs := u.needs(b.kept[k].long); len(needs) > 0 {
			if missing == nil {
				missing = map[int][]limit.Instant{}
			}
			missing[k] = needs
		}
	}
	return missing
}

// Decide answers all requests: those without an instant at now.
func (b *Batch) Decide(now limit.Instant) {
	for i := range b.kept {
		if b.long == 0 {
			break
		}
		if k := &b.kept[i]; k.long != nil {
			k.state.Log = k.long.assemble()
		}
	}
	for i, req := range b.reqs {
		at := cmp.Or(req.At, now)
		b.decide(req, at, b.out[i])
	}
}

// decide gathers the states of one request, decides it, and keeps what it has
// changed.
func (b *Batch) decide(req *limit.Request, at limit.Instant, out *limit.Verdict) {
	n := len(req.Ops)
	if cap(b.states) < n {
		b.states, b.scratch = make([]limit.State, n), make([]limit.State, n)
	}
	states := b.states[:n]
	for i := range states {
		states[i] = b.kept[b.known[req.Ops[i].Key]].state
	}
	changes := limit.Decide(states, req, at, out, b.scratch[:n])
	for i := range states {
		if changes.Has(i) || i >= limit.MaxChanges && first(req.Ops, i) {
			op := &req.Ops[i]
			k := &b.kept[b.known[op.Key]]
			k.state, k.last, k.changed = states[i], op.Limit, true
		}
	}
	clear(states)
	clear(b.scratch[:n])
}

// Changed lists the states that Decide has changed, in the order of Keys, with
// the position of their key there. The states belong to b.
func (b *Batch) Changed() iter.Seq2[int, Change] {
	return func(yield func(int, Change) bool) {
		for i := range b.kept {
			k := &b.kept[i]
			if k.changed && !yield(i, Change{b.keys[i], &k.state, k.last.Ends(k.state), k.long}) {
				return
			}
		}
	}
}

// Split divides the log of a changed state, if it has any, for a store that keeps long logs in
// parts: it returns the state to keep under the key, the parts to add, each under the
// instant of its state, and the instants of those to delete. A log of up to so many
// records that has no parts yet gets none. The form of a part has no more than size bytes.
func (c *Change) Split(whole, size int) (s limit.State, add []limit.State, gone []limit.Instant) {
	s = *c.State
	var log []limit.Record
	rest := s.Log
	if c.long != nil {
		log, rest, gone = c.long.left(rest)
	}
	if len(log) == 0 && len(rest) <= whole {
		return s, nil, gone
	}
	s.M = int64(len(log))
	rest = merged(rest)
	for s.M > 0 || len(rest) > whole {
		n, more := firstBytes(rest, size-limit.MaxFiguresSize)
		if !more {
			break
		}
		part := limit.State{Log: rest[:n], At: rest[n-1].At}
		for _, r := range part.Log {
			part.N += r.N
		}
		add, rest = append(add, part), rest[n:]
		log, s.M = append(log, limit.Record{At: part.At, N: part.N}), s.M+1
	}
	s.Log = append(log, rest...)
	return s, add, gone
}

// first reports whether op i is the first one with its key.
func first(ops []limit.Op, i int) bool {
	return !slices.ContainsFunc(ops[:i], func(o limit.Op) bool { return o.Key == ops[i].Key })
}

// Bad are the keys whose states no version of headgate has written, with what is wrong.
type Bad map[limit.Key]error

// Add notes what is wrong with the state of a key.
func (b *Bad) Add(k limit.Key, err error) {
	if *b == nil {
		*b = Bad{}
	}
	(*b)[k] = err
}

// Of returns what is wrong with the state of one of the request's keys, or nil.
func (b Bad) Of(req *limit.Request) error {
	for i := range req.Ops {
		if err := b[req.Ops[i].Key]; err != nil {
			return err
		}
	}
	return nil
}
