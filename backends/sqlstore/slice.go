package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/batch"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// A slice is a task: some requests to be decided.
type slice struct {
	reqs []*limit.Request
	out  []*limit.Verdict

	batch batch.Batch
	of    []limit.Key // the batch's
	keys  [][]byte    // sorted
	at    []int       // where keys[i] is among the batch's
	bad   batch.Bad
	heavy bool // more parts are missing than are read at once
}

const (
	// wholeLog is how many records a log has before some of them become a part, and partSize how many
	// bytes a part has at most. Oracle's columns hold oraclePart of them.
	wholeLog, partSize = 1000, 1000
	// maxMissing bounds the parts that a slice of several requests reads beside the oldest: they take
	// some 8 KB of memory each.
	maxMissing = 2000
)

// begin implements task.
func (s *slice) begin() [][]byte {
	s.batch.Reset()
	s.bad, s.heavy = nil, false
	for i, req := range s.reqs {
		s.batch.Add(req, s.out[i])
	}
	s.of = s.batch.Keys()
	if s.keys == nil { // not a repetition
		s.sort(s.of)
	}
	return s.keys
}

// sort makes the keys of rows: their order is that of their bytes, which is not that of the batch.
func (s *slice) sort(of []limit.Key) {
	keys := make([][]byte, len(of))
	s.keys, s.at = make([][]byte, len(of)), make([]int, len(of))
	for i, k := range of {
		keys[i], s.at[i] = counterKey(k), i
	}
	slices.SortFunc(s.at, func(a, b int) int { return cmp.Or(bytes.Compare(keys[a], keys[b]), a-b) })
	for i, at := range s.at {
		s.keys[i] = keys[at]
	}
}

// found implements task.
func (s *slice) found(i int, value []byte) {
	var state limit.State
	if err := state.UnmarshalBinary(value); err != nil {
		s.bad.Add(s.of[s.at[i]], err)
		return
	}
	s.batch.Put(s.at[i], state)
}

// long implements task. Other logs have parts only if a limit was lowered.
func (s *slice) long() (positions []int) {
	var long map[limit.Key]bool
	for _, req := range s.reqs {
		for i := range req.Ops {
			if l := req.Ops[i].Limit; l.Is(limit.Logged) && l.Capacity() > wholeLog {
				if long == nil {
					long = map[limit.Key]bool{}
				}
				long[req.Ops[i].Key] = true
			}
		}
	}
	if long == nil {
		return nil
	}
	for i, at := range s.at {
		if long[s.of[at]] {
			positions = append(positions, i)
		}
	}
	return positions
}

var errPart = errors.New("a part of the log is damaged or not there")

// part implements task.
func (s *slice) part(i int, value []byte) {
	var state limit.State
	err := state.UnmarshalBinary(value)
	switch {
	case errors.Is(err, limit.ErrLater):
		s.bad.Add(s.of[s.at[i]], err)
	case err != nil || !s.batch.PutPart(s.at[i], state):
		s.bad.Add(s.of[s.at[i]], errPart)
	}
}

// missing implements task.
func (s *slice) missing(now limit.Instant) (all []part) {
	if s.bad != nil {
		return nil
	}
	missing := s.batch.Missing(now)
	for i, at := range s.at {
		for _, last := range missing[at] {
			all = append(all, part{key: s.keys[i], last: int64(last)})
		}
	}
	if s.heavy = len(all) > maxMissing && len(s.reqs) > 1; s.heavy {
		return nil
	}
	return all
}

// count implements task.
func (s *slice) count() (sqldb.Query, *int64) { return sqldb.Query{}, nil }

// decide implements task.
func (s *slice) decide(now limit.Instant) (put []row, drop [][]byte) {
	if s.bad == nil && !s.heavy {
		for at := range s.batch.Missing(now) {
			s.bad.Add(s.of[at], errPart)
		}
	}
	if s.bad != nil || s.heavy {
		return nil, nil
	}
	s.batch.Decide(now)
	places := make([]int, len(s.at)) // where the batch's keys are among the rows'
	for i, at := range s.at {
		places[at] = i
	}
	for i, c := range s.batch.Changed() {
		put = append(put, changed(s.keys[places[i]], &c))
	}
	slices.SortFunc(put, func(a, b row) int { return bytes.Compare(a.key, b.key) })
	return put, nil
}

// changed is what is written of a change. States that were decided have no error.
func changed(key []byte, c *batch.Change) row {
	state, add, gone := c.Split(wholeLog, partSize)
	r := row{key: key, at: int64(state.At), n: state.N, m: state.M, ends: c.Ends}
	r.state, _ = state.AppendBinary(nil)
	for i := range add {
		text, _ := add[i].AppendBinary(nil)
		r.add = append(r.add, part{key: key, last: int64(add[i].At), state: text})
	}
	for _, at := range gone {
		r.gone = append(r.gone, part{key: key, last: int64(at)})
	}
	return r
}

// expel answers the requests that meet bad states, and leaves the others.
func (s *slice) expel() {
	rest := slice{}
	for i, req := range s.reqs {
		if err := s.bad.Of(req); err != nil {
			s.out[i].Fail(backends.Unreadable(err))
			continue
		}
		rest.reqs, rest.out = append(rest.reqs, req), append(rest.out, s.out[i])
	}
	*s = rest
}

func (s *slice) fail(err error) {
	for _, v := range s.out {
		v.Fail(err)
	}
}

// decide decides a slice in one transaction, or in several if it needs more parts of logs than are
// read at once. Requests that meet a state which is not headgate's fail, and the others are decided
// without them. After an error s has those that are not answered.
func (b *Backend) decide(ctx context.Context, s *slice, e effort) error {
	for len(s.reqs) > 0 {
		if err := b.run(ctx, "take", s, e); err != nil {
			return err
		}
		switch {
		case s.bad != nil:
			s.expel()
		case s.heavy:
			n := len(s.reqs) / 2
			first := &slice{reqs: s.reqs[:n:n], out: s.out[:n:n]}
			*s = slice{reqs: s.reqs[n:], out: s.out[n:]}
			if err := b.decide(ctx, first, e); err != nil {
				*s = slice{reqs: append(first.reqs, s.reqs...), out: append(first.out, s.out...)}
				return err
			}
		default:
			return nil
		}
	}
	return nil
}
