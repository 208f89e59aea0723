package redis

import (
	"errors"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A packer puts requests into calls and takes the replies apart.
type packer struct {
	keys
	caps     backends.Caps
	maxSlice int
	numbers  bool // see call
}

func newPacker(c *Config) (*packer, error) {
	p := &packer{caps: c.Caps(), maxSlice: c.MaxSlice}
	return p, p.keys.init(c, p.caps.Precision)
}

// scratch is what a Take needs and the next one can use again.
type scratch struct {
	calls []*call
	used  int
	where []int32 // per request: the call that has it, or unplaced
}

// newCall returns an empty call, which is s's.
func (p *packer) newCall(s *scratch) *call {
	if s.used == len(s.calls) {
		s.calls = append(s.calls, &call{})
	}
	c := s.calls[s.used]
	s.used++
	c.reset(p.layoutRow)
	c.numbers = p.numbers
	if p.salt != nil {
		c.salt = p.salt(&p.keys, c.salt)
	}
	return c
}

// place puts each valid request into a call, and says in s.where which.
// slotOf, for a Cluster, names the slot of a request or unplaced.
func (p *packer) place(s *scratch, reqs []limit.Request, out []limit.Verdict, slotOf func(req *limit.Request) int) {
	s.where = s.where[:0]
	for i := range reqs {
		req := &reqs[i]
		s.where = append(s.where, unplaced)
		out[i].Reset(len(req.Ops))
		if err := p.caps.CheckRequest(req); err != nil {
			out[i].Fail(err)
			continue
		}
		slot := 0
		if slotOf != nil {
			if slot = slotOf(req); slot == unplaced {
				continue
			}
		}
		at, c := p.callFor(s, slot, p.weight(req))
		s.where[i] = int32(at)
		p.pack(c, req)
	}
}

// pack puts a request into a call.
func (p *packer) pack(c *call, req *limit.Request) {
	c.add(p.told(req.At), len(req.Ops))
	c.addOps(&p.keys, req.Ops)
}

// again returns calls for the requests of calls that were declined. Those of a call with several
// requests get calls of their own.
func (p *packer) again(s *scratch, reqs []limit.Request) (all []*call) {
	for at, c := range s.calls[:s.used] {
		if !errors.Is(c.err, backends.ErrDeclined) || !errors.Is(c.err, backends.ErrNotApplied) {
			continue
		}
		if c.requests == 1 {
			c.insists = true
			all = append(all, c)
			continue
		}
		for i, where := range s.where {
			if where == int32(at) {
				s.where[i] = int32(s.used)
				alone := p.newCall(s)
				alone.slot, alone.insists = c.slot, true
				p.pack(alone, &reqs[i])
				all = append(all, alone)
			}
		}
	}
	return all
}

// callFor returns the call for slot that has room for n more weight. Calls are
// bounded, because Redis does nothing else while one is decided.
func (p *packer) callFor(s *scratch, slot, n int) (int, *call) {
	for i := s.used - 1; i >= 0; i-- {
		c := s.calls[i]
		if c.slot != slot {
			continue
		}
		if c.requests < p.maxSlice && c.weight+n <= max(4*p.maxSlice, maxOps) {
			c.weight += n
			return i, c
		}
		break
	}
	c := p.newCall(s)
	c.slot, c.weight = slot, n
	return s.used - 1, c
}

// weight says how much work req is, in ops. A unit of a zset is a member.
func (p *packer) weight(req *limit.Request) int {
	n := len(req.Ops)
	if !p.perUnit {
		return n
	}
	for i := range req.Ops {
		if op := &req.Ops[i]; op.Limit.Is(limit.Logged) {
			n += int(min(max(op.Cost, 0), op.Limit.Capacity()) / 8)
		}
	}
	return n
}

// collect takes the replies apart. Requests were placed in order, so each
// call's reply is read from front to back.
func (p *packer) collect(s *scratch, reqs []limit.Request, out []limit.Verdict) {
	for at, c := range s.calls[:s.used] {
		r := c.read()
		for i, where := range s.where {
			if where != int32(at) {
				continue
			}
			v := &out[i]
			if c.err != nil {
				v.Fail(c.err)
				continue
			}
			v.At = p.whole(reqs[i].At)
			if reqs[i].At == 0 {
				v.At = c.clock
			}
			ops := reqs[i].Ops
			c.verdict(&r, v, nil, func(j int) *limit.Op { return &ops[j] })
		}
	}
}
