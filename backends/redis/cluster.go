package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// On a Cluster a script sees the keys of one slot. A request whose keys share
// a slot is decided there, as on a single server. Of others each slot decides
// its part; when one refuses, the others give back exactly what they took.
// Costs below zero wait until the whole request is decided, because units
// given back too early could not be fetched again. Where such an op shares its
// key with another op of the request it cannot wait; the request is then tried
// out first, and given back too early only if others come in between.

// slots is the number of slots of a Cluster.
const slots = 16384

// slotOf returns the slot of a key.
func slotOf(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	return slotOfTag(key)
}

// slotOfTag returns the slot of all keys with that in their first braces.
func slotOfTag(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc) % slots
}

// slotOf returns the slot of op's key.
func (b *Backend) slotOf(op *limit.Op) int {
	if b.shares(op) {
		return slotOf(b.keyOf(op))
	}
	return slotOfTag(escapeGroup(op.Key.Group)) // see appendOwnKey
}

// crcTable is that of CRC16/XMODEM.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			top := crc & 0x8000
			if crc <<= 1; top != 0 {
				crc ^= 0x1021
			}
		}
		t[i] = crc
	}
	return t
}()

// requestSlot returns the slot that all keys of req share, or unplaced.
func (b *Backend) requestSlot(req *limit.Request) int {
	slot := unplaced
	for i := range req.Ops {
		switch s := b.slotOf(&req.Ops[i]); slot {
		case unplaced, s:
			slot = s
		default:
			return unplaced
		}
	}
	return slot
}

func (b *Backend) takeCluster(ctx context.Context, s *scratch, reqs []limit.Request, out []limit.Verdict) {
	b.place(s, reqs, out, b.requestSlot)
	var split []*splitRequest
	for i := range reqs {
		if s.where[i] == unplaced && out[i].Err == nil {
			split = append(split, b.split(s, &reqs[i], &out[i]))
		}
	}
	b.run(ctx, s.calls[:s.used])
	b.collect(s, reqs, out)
	if len(split) > 0 {
		b.finish(ctx, split)
	}
}

// A splitRequest is a request over several slots.
type splitRequest struct {
	req   *limit.Request
	out   *limit.Verdict
	parts []*part
	later []int // ops of negative cost, which wait for the decision
	// dry: an op of negative cost shares its key with another op, so it
	// cannot wait. The request is tried out first, and then sent for good.
	dry bool
}

// A part is what one slot decides of a request.
type part struct {
	slot    int
	ops     []int // indices into the request's
	call    *call
	numbers []int // of the ops in their call
	verdict limit.Verdict
	charged []limit.Instant
}

// split divides a request into parts, each in a call of its own: there are
// few, and it keeps replies simple to read.
func (b *Backend) split(s *scratch, req *limit.Request, out *limit.Verdict) *splitRequest {
	sr := &splitRequest{req: req, out: out}
	count := map[limit.Key]int{}
	for i := range req.Ops {
		count[req.Ops[i].Key]++
	}
	for i := range req.Ops {
		sr.dry = sr.dry || req.Ops[i].Cost < 0 && count[req.Ops[i].Key] > 1
	}
	for i := range req.Ops {
		if req.Ops[i].Cost < 0 && !sr.dry {
			sr.later = append(sr.later, i)
			continue
		}
		p := sr.part(b.slotOf(&req.Ops[i]))
		p.ops = append(p.ops, i)
	}
	for _, p := range sr.parts {
		p.send(b, s, req, sr.dry)
	}
	return sr
}

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

// send puts the part into a call.
func (p *part) send(b *Backend, s *scratch, req *limit.Request, dry bool) {
	p.call = s.call(b)
	p.call.slot = unplaced
	if dry {
		p.call.setFlags(float64(b.cfg.Layout) + flagDry)
	}
	p.call.add(b.told(req.At), len(p.ops))
	p.numbers = p.numbers[:0]
	for _, op := range p.ops {
		p.numbers = append(p.numbers, p.call.addOp(b, &req.Ops[op], len(p.ops)))
	}
}

// finish reads the parts' verdicts and sends what has to follow: giving back
// after a refusal, and the costs that waited.
func (b *Backend) finish(ctx context.Context, split []*splitRequest) {
	again := &scratch{}
	for _, sr := range split {
		sr.gather(b)
		if sr.dry && sr.out.Admitted && sr.out.Err == nil {
			for _, p := range sr.parts {
				p.send(b, again, sr.req, false)
			}
		}
	}
	if again.used > 0 {
		b.run(ctx, again.calls[:again.used])
		for _, sr := range split {
			if sr.dry && sr.out.Admitted && sr.out.Err == nil {
				sr.dry = false
				sr.gather(b)
			}
		}
	}
	after := &scratch{}
	var todo []*followUp
	for _, sr := range split {
		todo = append(todo, b.followUps(after, sr)...)
	}
	if len(todo) > 0 {
		b.follow(ctx, after, todo)
	}
}

// follow sends follow-ups. Giving back must not end with the caller's
// patience; so results are kept apart from the verdicts, which are the
// caller's again once Take returns.
func (b *Backend) follow(ctx context.Context, after *scratch, todo []*followUp) {
	done := make(chan struct{})
	b.background.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.Timeout)
		defer cancel()
		b.run(ctx, after.calls[:after.used])
		for _, f := range todo {
			f.read(b)
		}
	})
	select {
	case <-done:
		for _, f := range todo {
			f.deliver()
		}
	case <-ctx.Done():
		for _, f := range todo {
			f.missed(ctx.Err())
		}
	}
}

// gather makes the request's verdict from those of its parts.
func (sr *splitRequest) gather(b *Backend) {
	v := sr.out
	v.Admitted = true
	v.At = sr.req.At - mod(sr.req.At, b.step)
	for _, p := range sr.parts {
		p.verdict.Reset(len(p.ops))
		p.charged = make([]limit.Instant, len(p.ops))
		r := p.call.read()
		if p.verdict.Err = p.call.err; p.verdict.Err == nil {
			if p.verdict.At = b.told(sr.req.At); sr.req.At == 0 {
				p.verdict.At = p.call.clock
			}
			p.call.verdict(&r, &p.verdict, p.charged, sr.leases(p.ops))
		}
		if p.verdict.Err != nil {
			v.Err = sr.partError(p.verdict.Err)
			continue
		}
		if sr.req.At == 0 {
			v.At = p.verdict.At
		}
		v.Admitted = v.Admitted && p.verdict.Admitted
		for j, op := range p.ops {
			v.Outcomes[op] = p.verdict.Outcomes[j]
		}
	}
}

// partError is the request's error where one part failed: even if that part
// was not applied, giving the others back may fail.
func (sr *splitRequest) partError(err error) error {
	if len(sr.parts) == 1 && len(sr.later) == 0 {
		return err
	}
	kind := backends.ErrUnavailable
	if errors.Is(err, backends.ErrCorrupt) {
		kind = backends.ErrCorrupt
	}
	return fmt.Errorf("%w: one of %d parts: %v", kind, len(sr.parts), err)
}

// leases says of the ops of a part which are about leases.
func (sr *splitRequest) leases(ops []int) func(int) bool {
	return func(j int) bool { return sr.req.Ops[ops[j]].Limit.Algorithm() == limit.Concurrency }
}

// A followUp is a call after the verdict.
type followUp struct {
	sr      *splitRequest
	ops     []int
	had     []bool // whether each op had room; nil for one that is charged now
	undo    bool
	call    *call
	verdict limit.Verdict
}

// followUps places what has to follow the decision on sr.
func (b *Backend) followUps(s *scratch, sr *splitRequest) []*followUp {
	var list []*followUp
	refused := sr.out.Err != nil || !sr.out.Admitted
	if refused {
		for _, p := range sr.parts {
			// One that refused has recorded what it should, and of one that
			// failed nobody knows.
			if p.verdict.Err == nil && (p.verdict.Admitted || sr.dry) {
				list = append(list, b.settle(s, sr, p))
			}
		}
	}
	if sr.out.Err != nil {
		return list
	}
	for _, i := range sr.later {
		o := &sr.req.Ops[i]
		f := &followUp{sr: sr, ops: []int{i}, call: s.call(b)}
		f.call.slot = unplaced
		f.call.add(b.told(sr.req.At), 1)
		if refused && !chargesEach(o) {
			f.had = []bool{true}
			f.call.op(o, f.call.key(b, o), o.Cost, bitHadRoom|flagsOf(o))
			f.call.settle([]int{1}, []float64{0})
		} else {
			f.call.addOp(b, o, 1)
		}
		list = append(list, f)
	}
	return list
}

// settle makes of a part that would have been admitted one that is refused.
func (b *Backend) settle(s *scratch, sr *splitRequest, p *part) *followUp {
	f := &followUp{sr: sr, ops: p.ops, undo: !sr.dry, call: s.call(b)}
	f.call.slot = unplaced
	f.call.salt = append(f.call.salt[:0], p.call.salt...)
	at := b.told(sr.req.At)
	if at < 0 {
		at = p.call.clock
	}
	f.call.add(at, len(p.ops))
	var times []float64
	for j, i := range p.ops {
		o := &sr.req.Ops[i]
		had := p.verdict.Outcomes[j].Admitted
		bits, time := flagsOf(o), 0.0
		if had {
			bits |= bitHadRoom
		}
		if had && o.Cost > 0 && !sr.dry {
			time = float64(p.charged[j])
		}
		f.had, times = append(f.had, had), append(times, time)
		f.call.op(o, f.call.key(b, o), o.Cost, bits)
	}
	f.call.settle(p.numbers, times)
	return f
}

// read takes the reply apart, into memory of its own.
func (f *followUp) read(b *Backend) {
	r := f.call.read()
	f.verdict.Reset(len(f.ops))
	if f.verdict.Err = f.call.err; f.verdict.Err == nil {
		f.call.verdict(&r, &f.verdict, nil, f.sr.leases(f.ops))
	}
	switch {
	case !f.undo:
	case f.verdict.Err != nil:
		b.notUndone.Add(1)
	default:
		b.undone.Add(1)
	}
}

// deliver puts the result into the request's verdict. Where giving back
// failed the refusal stands, and with it outcomes that count the units.
func (f *followUp) deliver() {
	v := f.sr.out
	switch {
	case f.verdict.Err != nil && f.undo, v.Err != nil:
		return
	case f.verdict.Err != nil:
		v.Err = f.sr.partError(f.verdict.Err)
		return
	}
	for j, i := range f.ops {
		retry, inFlight, held := v.Outcomes[i].Retry, v.Outcomes[i].InFlight, v.Outcomes[i].Held
		v.Outcomes[i] = f.verdict.Outcomes[j]
		if f.had != nil { // what it found first stands
			v.Outcomes[i].Held = held
		}
		if f.had != nil && !f.had[j] {
			v.Outcomes[i].InFlight = inFlight
		}
		if f.had != nil && !f.had[j] && !chargesEach(&f.sr.req.Ops[i]) {
			v.Outcomes[i].Retry = retry // the wait that refused it stands
		}
	}
	if len(f.sr.parts) == 0 && f.sr.req.At == 0 {
		v.At = f.call.clock
	}
}

// missed says that the caller's time ended before the follow-up did.
func (f *followUp) missed(err error) {
	if !f.undo {
		_, f.sr.out.Err = mapError(err, true)
	}
}

// groupsOfMasters returns a group on each master, and an error unless every
// slot has one.
func (b *Backend) groupsOfMasters(ctx context.Context) ([]string, error) {
	//lint:ignore SA1019 CLUSTER SHARDS came with Redis 7.0
	ranges, err := b.cluster.ClusterSlots(ctx).Result()
	if err != nil {
		_, err = mapError(err, false)
		return nil, err
	}
	masters, covered := map[string][]redis.ClusterSlot{}, 0
	for _, r := range ranges {
		if len(r.Nodes) > 0 {
			masters[r.Nodes[0].Addr] = append(masters[r.Nodes[0].Addr], r)
			covered += r.End - r.Start + 1
		}
	}
	if covered < slots {
		return nil, fmt.Errorf("redis: %w: %w: the cluster covers %d of %d slots", backends.ErrUnavailable, backends.ErrNotApplied, covered, slots)
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
