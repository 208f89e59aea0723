// Package batch decides slices of requests for stores that keep states elsewhere and decide in Go, such as in rows.
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
		if k := req.Ops[i].Key; !b.has(k) {
			b.known[k] = len(b.keys)
			b.keys = append(b.keys, k)
		}
	}
}

func (b *Batch) has(k limit.Key) bool {
	_, ok := b.known[k]
	return ok
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
		at := req.At
		if at == 0 {
			at = now
		}
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
		if op := &req.Ops[i]; changes.Has(i) || i >= limit.MaxChanges && first(req.Ops, i) {
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

// first reports whether op i is the first one with its key.
func first(ops []limit.Op, i int) bool {
	return !slices.ContainsFunc(ops[:i], func(o limit.Op) bool { return o.Key == ops[i].Key })
}
