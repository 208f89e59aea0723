package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/headgate-rls/headgate/internal/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// A slice is a task: some requests to be decided.
type slice struct {
	reqs []*limit.Request
	out  []*limit.Verdict

	batch limit.Batch
	of    []limit.Key // the batch's
	keys  [][]byte    // sorted
	at    []int       // where keys[i] is among the batch's
	bad   map[limit.Key]error
}

// begin implements task.
func (s *slice) begin() [][]byte {
	s.batch.Reset()
	s.bad = nil
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
	type placed struct {
		key []byte
		at  int
	}
	all := make([]placed, len(of))
	for i, k := range of {
		all[i] = placed{counterKey(k), i}
	}
	slices.SortFunc(all, func(a, b placed) int { return cmp.Or(bytes.Compare(a.key, b.key), a.at-b.at) })
	s.keys, s.at = make([][]byte, len(all)), make([]int, len(all))
	for i := range all {
		s.keys[i], s.at[i] = all[i].key, all[i].at
	}
}

// found implements task.
func (s *slice) found(i int, value []byte) {
	var state limit.State
	if err := state.UnmarshalBinary(value); err != nil {
		if s.bad == nil {
			s.bad = map[limit.Key]error{}
		}
		s.bad[s.of[s.at[i]]] = err
		return
	}
	s.batch.Put(s.at[i], state)
}

// count implements task.
func (s *slice) count() (sqldb.Query, *int64) { return sqldb.Query{}, nil }

// decide implements task.
func (s *slice) decide(now limit.Instant) (put []row, drop [][]byte) {
	if s.bad != nil {
		return nil, nil
	}
	s.batch.Decide(now)
	places := make([]int, len(s.at)) // where the batch's keys are among the rows'
	for i, at := range s.at {
		places[at] = i
	}
	for i, c := range s.batch.Changed() {
		state, _ := c.State.AppendBinary(nil) // of a state that was decided there is no error
		put = append(put, row{s.keys[places[i]], state, int64(c.State.At), c.State.N, c.State.M, c.Ends})
	}
	slices.SortFunc(put, func(a, b row) int { return bytes.Compare(a.key, b.key) })
	return put, nil
}

// expel answers the requests that meet bad states, and leaves the others.
func (s *slice) expel() {
	rest := slice{}
	for i, req := range s.reqs {
		if err := s.badState(req); err != nil {
			failVerdict(s.out[i], corrupt(err))
			continue
		}
		rest.reqs, rest.out = append(rest.reqs, req), append(rest.out, s.out[i])
	}
	*s = rest
}

func (s *slice) badState(req *limit.Request) error {
	for i := range req.Ops {
		if err := s.bad[req.Ops[i].Key]; err != nil {
			return err
		}
	}
	return nil
}

func (s *slice) fail(err error) {
	for _, v := range s.out {
		failVerdict(v, err)
	}
}

func failVerdict(v *limit.Verdict, err error) {
	v.Reset(0)
	v.Err = err
}

// decide decides a slice in one transaction. Requests that meet a state which is not headgate's fail,
// and the others are decided without them. After an error s has those that are not answered.
func (b *Backend) decide(ctx context.Context, s *slice, e effort) error {
	for len(s.reqs) > 0 {
		if err := b.run(ctx, "take", s, e); err != nil {
			return err
		}
		if s.bad == nil {
			return nil
		}
		s.expel()
	}
	return nil
}
