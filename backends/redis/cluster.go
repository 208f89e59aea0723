package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// On a Cluster a script sees the keys of one slot. A request whose keys share
// a slot is decided there, as on a single server. Of others each slot decides
// its part, as a request of its own and all in one round trip. When one refuses
// or fails, the request is answered at once, and what the others took is given
// back in the background: see refunds.go.
//
// Costs below zero wait until the others are admitted, because units given back
// too early could not be fetched again. They cost a second trip, and find what
// the others left.

// takeSplit is take on a Cluster.
func (b *Backend) takeSplit(ctx context.Context, s *scratch, reqs []limit.Request, out []limit.Verdict) {
	b.place(s, reqs, out, b.requestSlot)
	var split, waiting []*splitRequest
	for i := range reqs {
		if s.where[i] == unplaced && out[i].Err == nil && limit.HasAlternatives(reqs[i].Ops) {
			out[i].Fail(errChoiceApart)
		} else if s.where[i] == unplaced && out[i].Err == nil {
			sr := &splitRequest{req: &reqs[i], out: &out[i]}
			b.split(s, sr)
			split = append(split, sr)
		}
	}
	b.decide(ctx, b.packer, s, reqs)
	b.collect(s, reqs, out)
	for _, sr := range split {
		sr.gather(&b.keys)
		switch {
		case sr.out.Err != nil || !sr.out.Admitted:
			b.giveBack(sr)
		case sr.waiting:
			waiting = append(waiting, sr)
		}
	}
	if len(waiting) > 0 {
		b.takeWaiting(ctx, waiting)
	}
}

var errChoiceApart = fmt.Errorf("redis: %w: %w: a Cluster has the keys of these alternatives in several slots",
	backends.ErrUnsupported, backends.ErrNotApplied)

// A splitRequest is a request over several slots. It and its parts are used
// until Take returns and no longer, like the request and the verdict.
type splitRequest struct {
	req     *limit.Request
	out     *limit.Verdict
	parts   []*part
	waiting bool // some ops wait until the others are admitted
}

// A part is what one slot decides of a request.
type part struct {
	slot    int
	ops     []int // indices into the request's
	call    *call
	verdict limit.Verdict
	charged []limit.Instant
}

// split divides a request into parts, each in a call of its own: there are
// few, and it keeps replies simple to read. Ops that wait ask what is left.
func (b *Backend) split(s *scratch, sr *splitRequest) {
	ops := sr.req.Ops
	mayRefuse := slices.ContainsFunc(ops, func(op limit.Op) bool { return op.Cost >= 0 && !op.Shadow })
	for i := range ops {
		sr.waiting = sr.waiting || mayRefuse && waits(&ops[i])
		p := sr.part(b.slotOf(&ops[i], b.told(sr.req.At)))
		p.ops = append(p.ops, i)
	}
	for _, p := range sr.parts {
		p.send(b.packer, s, sr, func(op limit.Op) limit.Op {
			if sr.waiting && waits(&op) {
				op.Cost, op.Holder, op.Shadow = 0, "", true
			}
			return op
		})
	}
}

// waits reports whether op, of a request that may be refused, is not done before
// the request is admitted.
func waits(op *limit.Op) bool { return op.Cost < 0 && !op.ChargesEach() }

func (sr *splitRequest) part(slot int) *part {
	for _, p := range sr.parts {
		if p.slot == slot {
			return p
		}
	}
	p := &part{slot: slot}
	sr.parts = append(sr.parts, p)
	return p
}

// send puts the part into a call, its ops changed by as.
func (p *part) send(k *packer, s *scratch, sr *splitRequest, as func(op limit.Op) limit.Op) {
	p.call = k.newCall(s)
	p.call.slot = p.slot
	p.call.numbers = k.numbers && sr.req.Ops[p.ops[0]].Each // else other parts are charged with it
	p.call.add(k.told(sr.req.At), len(p.ops))
	ops := make([]limit.Op, len(p.ops))
	for j, i := range p.ops {
		ops[j] = as(sr.req.Ops[i])
	}
	p.call.addOps(&k.keys, ops)
}

// read parses the reply to the part.
func (p *part) read(k *keys, sr *splitRequest) {
	p.verdict.Reset(len(p.ops))
	p.charged = make([]limit.Instant, len(p.ops))
	r := p.call.read()
	if p.verdict.Err = p.call.err; p.verdict.Err != nil {
		return
	}
	p.verdict.At = k.told(sr.req.At)
	if sr.req.At == 0 {
		p.verdict.At = p.call.clock
	}
	p.call.verdict(&r, &p.verdict, p.charged, func(j int) *limit.Op { return sr.op(p, j) })
}

// op returns the op that is number j of p.
func (sr *splitRequest) op(p *part, j int) *limit.Op { return &sr.req.Ops[p.ops[j]] }

// gather makes the request's verdict from those of its parts.
func (sr *splitRequest) gather(k *keys) {
	v := sr.out
	v.Admitted = true
	v.At = k.whole(sr.req.At)
	for _, p := range sr.parts {
		p.read(k, sr)
		if p.verdict.Err != nil {
			continue
		}
		if sr.req.At == 0 {
			v.At = p.verdict.At
		}
		v.Admitted = v.Admitted && p.verdict.Admitted
		for j, i := range p.ops {
			v.Outcomes[i] = p.verdict.Outcomes[j]
		}
	}
	if err := sr.partsError(); err != nil && !sr.refusedAnyway() {
		v.Fail(err)
	} else if !v.Admitted {
		sr.forgetTaken()
	}
}

// refusedAnyway reports whether a part refuses, and those that failed have recorded nothing. Their ops then have
// the outcomes of an unused limit.
func (sr *splitRequest) refusedAnyway() bool {
	if sr.out.Admitted {
		return false
	}
	for _, p := range sr.parts {
		if p.verdict.Err == nil {
			continue
		}
		if !errors.Is(p.verdict.Err, backends.ErrNotApplied) || errors.Is(p.verdict.Err, backends.ErrCorrupt) {
			return false
		}
		for j, i := range p.ops {
			sr.out.Outcomes[i] = limit.Outcome{Admitted: true, Remaining: sr.op(p, j).Limit.Capacity()}
		}
	}
	return true
}

// partsError is the request's error where parts failed. Something may have been
// recorded, unless all parts failed and are known to have had no effect.
func (sr *splitRequest) partsError() error {
	failed, applied, silent := 0, false, false
	var last error
	kind := backends.ErrDeclined
	for _, p := range sr.parts {
		if err := p.verdict.Err; err != nil {
			failed++
			if !errors.Is(last, backends.ErrLater) {
				last = err
			}
			applied = applied || !errors.Is(err, backends.ErrNotApplied)
			silent = silent || kindOf(err) == backends.ErrUnavailable
			if errors.Is(err, backends.ErrCorrupt) && kind != backends.ErrLater {
				kind = kindOf(err)
			}
		}
	}
	if silent && kind == backends.ErrDeclined {
		kind = backends.ErrUnavailable
	}
	if failed == 0 || failed == len(sr.parts) && !applied {
		return last
	}
	return fmt.Errorf("%w: %d of %d parts: %v", kind, failed, len(sr.parts), last)
}

// kindOf returns which of the errors of a store err is, whatever is known of its effect.
func kindOf(err error) error {
	for _, kind := range []error{backends.ErrLater, backends.ErrCorrupt, backends.ErrDeclined} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return backends.ErrUnavailable
}

// taken reports whether the part's op j took something that a refused request must
// not keep.
func (sr *splitRequest) taken(p *part, j int) bool {
	op := sr.op(p, j)
	return p.verdict.Admitted && p.verdict.Outcomes[j].Admitted && op.Cost > 0 && !sr.recorded(p, op)
}

// recorded reports whether an op of the part is recorded also if the request is refused.
func (sr *splitRequest) recorded(p *part, op *limit.Op) bool {
	return op.ChargesEach() || op.Cost > 0 && sr.overflows(p, op.Key)
}

// overflows reports whether an op of the part under a key had no room and took
// something all the same: then all ops under the key are recorded.
func (sr *splitRequest) overflows(p *part, key limit.Key) bool {
	for j := range p.ops {
		if op := sr.op(p, j); !p.verdict.Outcomes[j].Admitted && op.Overflows() && op.Key == key {
			return true
		}
	}
	return false
}

// forgetTaken makes the outcomes of a refused request those of ops that are not
// recorded: what is left is what there is once everything is given back. Only
// Reset stays as if it were not.
func (sr *splitRequest) forgetTaken() {
	for _, p := range sr.parts {
		for j, i := range p.ops {
			op, out := sr.op(p, j), &sr.out.Outcomes[i]
			lease := op.Limit.Is(limit.Leased)
			last := j
			if !lease && p.verdict.Admitted && !sr.recorded(p, op) {
				last = sr.lastUnder(p, op.Key)
				out.Remaining = p.verdict.Outcomes[last].Remaining
			}
			for before := range p.ops[:last+1] {
				other := sr.op(p, before)
				switch {
				case other.Key != op.Key || !sr.taken(p, before):
				case !lease:
					out.Remaining += other.Cost
				case !p.verdict.Outcomes[before].Held:
					out.Remaining++
					out.InFlight--
				}
			}
			switch {
			case sr.waiting && waits(op):
				out.Admitted = true
				if out.Remaining > 0 {
					out.Retry = 0
				}
			case out.Admitted && !sr.recorded(p, op):
				out.Retry = 0
			}
		}
	}
}

// lastUnder returns the last op of the part under a key, which has one: its outcome says what all of them leave.
func (sr *splitRequest) lastUnder(p *part, key limit.Key) int {
	j := len(p.ops) - 1
	for sr.op(p, j).Key != key {
		j--
	}
	return j
}

// giveBack queues refunds of what sr took. After an error the caller gives the
// leases back, as the contract says. What was charged together with a lease stays
// charged, since the caller's repetition may rely on that. So does what was charged
// beside a part that a full server has no room for: see errPartly.
func (b *Backend) giveBack(sr *splitRequest) {
	full := func(p *part) bool { return errors.Is(p.verdict.Err, errFull) }
	if sr.out.Err != nil && slices.ContainsFunc(sr.parts, full) {
		return
	}
	var list []refund
	for _, p := range sr.parts {
		if p.verdict.Err != nil || !p.verdict.Admitted {
			continue // has recorded nothing that it should not, or nobody knows
		}
		r := refund{slot: p.slot, at: b.told(sr.req.At)}
		leases, held := false, false
		for j := range p.ops {
			if sr.taken(p, j) && sr.op(p, j).Limit.Is(limit.Leased) {
				leases, held = true, held || p.verdict.Outcomes[j].Held
			}
		}
		if leases && sr.out.Err != nil {
			continue
		}
		for j := range p.ops {
			op := sr.op(p, j)
			if !sr.taken(p, j) || held && !op.Limit.Is(limit.Leased) {
				continue // a repetition was charged nothing
			}
			r.add(op, asOf(op, &p.verdict.Outcomes[j], p.verdict.At, p.charged[j]))
		}
		if len(r.ops) > 0 {
			list = append(list, r)
		}
	}
	b.refunds.push(list)
}

// takeWaiting does the ops that have waited, of requests that are admitted.
func (b *Backend) takeWaiting(ctx context.Context, list []*splitRequest) {
	s := &scratch{}
	second := make([]*splitRequest, len(list))
	for i, sr := range list {
		second[i] = &splitRequest{req: sr.req, out: sr.out}
		for j := range sr.req.Ops {
			if op := &sr.req.Ops[j]; waits(op) {
				p := second[i].part(b.slotOf(op, b.told(sr.req.At)))
				p.ops = append(p.ops, j)
			}
		}
		for _, p := range second[i].parts {
			p.send(b.packer, s, sr, func(op limit.Op) limit.Op { return op })
		}
	}
	b.decide(ctx, b.packer, s, nil)
	for i, sr := range list {
		for _, p := range second[i].parts {
			p.read(&b.keys, sr)
			for j, op := range p.ops {
				sr.out.Outcomes[op] = p.verdict.Outcomes[j]
			}
		}
		if err := second[i].partsError(); err != nil {
			sr.out.Fail(fmt.Errorf("%w: %v", kindOf(err), err)) // the first trip had an effect
			b.giveBack(sr)
		}
	}
}

// groupsOfMasters returns a group on each master, and an error unless every
// slot has one.
func (b *Backend) groupsOfMasters(ctx context.Context) ([]string, error) {
	//lint:ignore SA1019 CLUSTER SHARDS came with Redis 7.0
	ranges, err := b.cluster.ClusterSlots(ctx).Result()
	if err != nil {
		return nil, mapped(err, false)
	}
	masters, covered := map[string][]redis.ClusterSlot{}, 0
	for _, r := range ranges {
		if len(r.Nodes) > 0 {
			masters[r.Nodes[0].Addr] = append(masters[r.Nodes[0].Addr], r)
			covered += r.End - r.Start + 1
		}
	}
	if covered < slots {
		return nil, fmt.Errorf("redis: %w: %w: the cluster covers %d of %d slots", backends.ErrUnavailable,
			backends.ErrNotApplied, covered, slots)
	}
	var groups []string
	for i := 0; len(masters) > 0; i++ {
		g := "ping" + strconv.Itoa(i)
		slot := slotOf(b.ownKey(limit.Key{Group: g}))
		for addr, list := range masters {
			for _, r := range list {
				if slot >= r.Start && slot <= r.End {
					groups = append(groups, g)
					delete(masters, addr)
					break
				}
			}
		}
	}
	return groups, nil
}
