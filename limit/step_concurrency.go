package limit

import (
	"sort"
	"strings"
)

// Concurrency: each lease has an end of its own, so that lost leases expire and
// nothing is counted twice. A refused op is remembered for Hold, so that tiers
// above the limit can be distinguished.

func prepareHold(l *Limit) error {
	l.hold = l.spec.Hold.Microseconds()
	l.holdStep = ceilDiv(l.hold, holdSteps*1000) * 1000
	return nil
}

func holdFigures(l *Limit) (hold, step int64) { return l.hold, l.holdStep }

func endsLeases(_ *Limit, s State) Instant { return s.Leases.ends() }

// stepConcurrency decides op on s, which it changes in place. again says that
// an acquire that finds its lease is a repetition, and not the same op twice
// in one request.
func stepConcurrency(s State, op *Op, now Instant, again bool) (State, Outcome) {
	var out Outcome
	var rest Instant
	set, changed := s.Leases, false
	switch {
	case op.endsOwner():
		set, changed = set.made(), true
		out.Admitted = true
		out.Held, rest = set.endOwner(op.Holder, Instant(-max(op.Cost, -maxExact)), now)
	case op.Cost < 0 && op.Ending == EndLate:
		set, changed = set.made(), true
		out.Admitted = true
		out.Held = set.endLate(op, now)
	case op.Cost < 0:
		set, changed = set.made(), true
		out.Admitted = true
		out.Held = set.giveBack(op, now)
	case op.Cost == 0 && op.Holder == "":
		out.Admitted = set.InFlight(now) < op.Limit.capacity
	case op.Cost == 0:
		out.Held = set.prolong(op, now)
		out.Admitted, changed = out.Held, out.Held
	default:
		set = set.made()
		out.Admitted, out.Held = set.acquire(op, now, again)
		changed = out.Admitted || set.remember(op, now)
	}
	set.describe(op, now, &out)
	if op.endsOwner() {
		out.Retry = micros(int64(max(rest-now, 0)))
	}
	if changed {
		s.Leases = set
		if !set.journal.open {
			set.tidy(now)
		}
	}
	return s, out
}

func (s *LeaseSet) made() *LeaseSet {
	if s == nil {
		s = &LeaseSet{scores: map[string]int64{}}
	}
	return s
}

// acquire takes a lease for op, or finds that it is there already.
func (s *LeaseSet) acquire(op *Op, now Instant, again bool) (admitted, held bool) {
	score, live := s.get(op.Holder, now)
	if live {
		s.renew(op, score, now, again)
		return true, true
	}
	if s.wasEnded(op.Holder, now) {
		return false, false
	}
	if s.InFlight(now) >= op.Limit.capacity {
		return false, false
	}
	s.set(strings.Clone(op.Holder), score, scoreAt(now+Instant(op.Limit.window), 0))
	return true, false
}

// renew moves the end of op's lease away, and with again counts one more who has it. It returns the lease's score.
func (s *LeaseSet) renew(op *Op, old int64, now Instant, again bool) int64 {
	n := old % 8
	if again && n < maxAgain {
		n++
	}
	score := max(scoreAt(now+Instant(op.Limit.window), n), old/8*8+n)
	s.set(op.Holder, old, score)
	return score
}

// prolong renews a lease whose caller has received it: no attempt ends it any more, and
// its score no longer says when it was granted.
func (s *LeaseSet) prolong(op *Op, now Instant) bool {
	score, live := s.get(op.Holder, now)
	if live {
		score = s.renew(op, score, now, false)
		s.set(op.Holder, score, score/8*8+maxAgain)
	}
	return live
}

// giveBack ends what op says, and reports whether there was any.
func (s *LeaseSet) giveBack(op *Op, now Instant) bool {
	if op.Holder == "" {
		return s.giveBackAny(op, now)
	}
	score, ok := s.get(op.Holder, now)
	switch {
	case !ok && op.Ending == EndKnown:
	case !ok:
		s.end(op.Holder, now)
	case op.Ending == EndAttempt && score%8 > 0:
		s.set(op.Holder, score, score-1)
	default:
		s.set(op.Holder, score, 0)
	}
	return ok
}

// giveBackAny ends -Cost leases of any holders. Callers without a name give back
// after a refusal, too: remembered refusals are given back first.
func (s *LeaseSet) giveBackAny(op *Op, now Instant) bool {
	s.moveRefused(now, op.Limit)
	n := min(-max(op.Cost, -maxExact), s.remembered(now)+s.InFlight(now))
	left := n - s.forgive(now, n)
	for range left {
		q := s.nth(now, 0)
		s.set(q.holder, q.score, 0)
	}
	return n > 0
}

// endLate ends leases that expire soon, and reports whether there was any.
func (s *LeaseSet) endLate(op *Op, now Instant) bool {
	at, _ := s.first(now)
	till := now + Instant(min(-max(op.Cost, -MaxInFlight), MaxInFlight)*1000)
	var late []queued
	for _, q := range s.queue[at:] {
		if expiry(q.score) > till || len(late) == OwnerSlice {
			break
		}
		if s.current(q) {
			late = append(late, q)
		}
	}
	for _, q := range late {
		s.set(q.holder, q.score, 0)
	}
	return len(late) > 0
}

// endOwner ends an owner's leases among the next OwnerSlice that expire at an
// instant or later, and reports whether there was any. rest is when the first
// lease expires that it has not looked at, 0 means none.
func (s *LeaseSet) endOwner(owner string, from, now Instant) (any bool, rest Instant) {
	at, _ := s.first(now)
	least := ceilDiv(int64(from), 1000) * 8
	at += sort.Search(len(s.queue)-at, func(i int) bool { return s.queue[at+i].score >= least })
	var mine []queued
	seen, last := 0, Instant(0)
	for _, q := range s.queue[at:] {
		if !s.current(q) {
			continue
		}
		if seen >= OwnerSlice && expiry(q.score) != last {
			rest = expiry(q.score)
			break
		}
		seen, last = seen+1, expiry(q.score)
		if strings.HasPrefix(q.holder, owner) {
			mine = append(mine, q)
		}
	}
	for _, q := range mine {
		s.set(q.holder, q.score, 0)
	}
	return len(mine) > 0, rest
}

// describe fills in what is left after op.
func (s *LeaseSet) describe(op *Op, now Instant, out *Outcome) {
	l := op.Limit
	n := s.InFlight(now)
	out.Remaining, out.InFlight = max(l.capacity-n, 0), n
	if !out.Admitted || op.Cost == 0 {
		out.InFlight += s.remembered(now)
	}
	ended := op.Cost > 0 && !out.Admitted && s.wasEnded(op.Holder, now)
	if !out.Admitted && op.Cost > 0 && (l.hold == 0 || ended) {
		out.InFlight++ // else it is among those remembered
	}
	at := s.latest(now)
	if at > 0 && op.Cost > 0 && l.farAhead(at, l.window, now) {
		s.moveTo(now, l)
		at = s.latest(now)
	}
	if at > 0 {
		out.Reset = micros(int64(at - now))
	}
	switch {
	case l.capacity == 0 || ended || op.Cost == 0 && op.Holder != "" && !out.Held:
		out.Retry = Never
	case n >= l.capacity:
		q := s.nth(now, n-l.capacity)
		out.Retry = micros(int64(expiry(q.score) - now))
	}
}

// repeated reports whether one of the ops is an acquire that was granted before:
// then all of the request was, and is not charged again.
func repeated(states []State, ops []Op, now Instant) bool {
	for i := range ops {
		if op := &ops[i]; op.Limit.Is(Leased) && op.Cost > 0 {
			if _, ok := states[firstWithKey(ops, i)].Leases.get(op.Holder, now); ok {
				return true
			}
		}
	}
	return false
}

// decideRepeated answers a request that was granted before.
func decideRepeated(states []State, ops []Op, now Instant, v *Verdict) {
	for i := range ops {
		op, at := &ops[i], firstWithKey(ops, i)
		ask := Op{Limit: op.Limit}
		if op.Limit.Is(Leased) && op.Cost > 0 {
			if _, ok := states[at].Leases.get(op.Holder, now); ok {
				ask = *op
			}
		}
		states[at], v.Outcomes[i] = Step(states[at], &ask, now)
		v.Outcomes[i].Admitted, v.Outcomes[i].Retry = true, 0
	}
	chooseGranted(ops, v)
}

// begin notes the changes that an op makes in place, so that they can be taken
// back if another of the request's ops is refused.
func (s *State) begin() {
	s.Leases = s.Leases.made()
	s.Leases.begin()
}

// rememberRefused counts an op without room whose refused request left no
// other trace.
func (s *State) rememberRefused(op *Op, now Instant, out *Outcome) {
	if out.Admitted || op.Cost <= 0 {
		return
	}
	s.Leases = s.Leases.made()
	if s.Leases.journal.moved {
		s.Leases.moveTo(now, op.Limit)
	}
	if s.Leases.remember(op, now) {
		s.Leases.tidy(now)
	}
}
