package limit

// Changes says which states a decision has changed. See [Decide].
type Changes uint64

// Has reports whether the state under the key of the op number i was changed. Where
// ops share a key, it is true of the first of them only. It is
// known of the first [MaxChanges] ops.
func (c Changes) Has(i int) bool { return c>>i&1 != 0 }

func (c *Changes) add(i int) { *c |= 1 << i }

// MaxChanges is how many ops a request may have for [Changes] to be complete.
const MaxChanges = 64

// Decide answers req at instant now: the reference for every backend's Take. It
// returns which states a store must write: the others are as they were, or have
// lost only what was over.
//
// states[i] is the state under req.Ops[i].Key; where ops share a key, the
// first one's counts and is the one that is updated. Decide replaces the
// states of the ops that are recorded and fills v. scratch is working memory
// of at least len(states); nil lets Decide allocate it.
func Decide(states []State, req *Request, now Instant, v *Verdict, scratch []State) Changes {
	ops := req.Ops
	v.Reset(len(ops))
	v.At, v.Admitted = now, true
	now = bounded(now)
	if len(ops) == 1 && !ops[0].Limit.Is(Leased) && !ops[0].Alternative() {
		if decideOne(&states[0], &ops[0], now, v) {
			return 1
		}
		return 0
	}
	if len(scratch) < len(ops) {
		scratch = make([]State, len(ops))
	}
	next := scratch[:len(ops)]
	if Settles(ops) {
		return decideSettlement(states, ops, now, v, next)
	}
	leased, alternatives := kinds(ops)
	if !leased && !alternatives {
		return decideNew(states, req, now, v, next, leased)
	}
	unchanged(states)
	var changes Changes
	switch {
	case leased && repeated(states, ops, now):
		copy(next, states)
		decideRepeated(next, ops, now, v)
		changes = keep(states, next)
	case alternatives:
		changes = decideAlternatives(states, req, now, v, next)
	default:
		changes = decideNew(states, req, now, v, next, leased)
	}
	return changes | changedLeases(states, ops)
}

// kinds reports whether some ops are about leases, and whether some are alternatives.
func kinds(ops []Op) (leased, alternatives bool) {
	var traits Trait
	var set uint8
	for i := range ops {
		traits |= ops[i].Limit.traits
		set |= ops[i].Choice.Set
	}
	return traits&Leased != 0, set != 0
}

// DecideOne is [Decide] for a request of one op whose limit has no leases, at its own instant. It reports whether s has
// changed.
func DecideOne(s *State, req *Request, v *Verdict) (changed bool) {
	v.Reset(1)
	v.At = req.At
	return decideOne(s, &req.Ops[0], bounded(req.At), v)
}

// decideOne answers a request of one op, which is recorded, or not, as it is alone.
func decideOne(s *State, op *Op, now Instant, v *Verdict) (changed bool) {
	before, out := *s, &v.Outcomes[0]
	if op.AsOf != 0 {
		return decideReturn(s, op, now, out)
	}
	if op.Limit.below < 0 { // as in decideNew
		s.stepStrict(op.Limit, op.Cost, now, out)
	} else {
		s.step(op, now, out)
	}
	v.Admitted = out.Admitted || op.Shadow
	return !same(&before, s)
}

// decideNew answers a request that was not granted before. leased says whether ops are about leases.
func decideNew(states []State, req *Request, now Instant, v *Verdict, next []State, leased bool) (changes Changes) {
	ops := req.Ops
	changes = moveAhead(states, next, ops, now)
	copy(next, states)
	if leased {
		holdBack(next, ops, now)
	}
	alone := false // some op is charged whatever becomes of the request
	for i := range ops {
		op, at := &ops[i], firstWithKey(ops, i)
		if op.Limit.Is(Leased) {
			if len(ops) > 1 {
				next[at].begin()
			}
			next[at], v.Outcomes[i] = stepConcurrency(next[at], op, now, false)
		} else if op.Limit.below < 0 { // most limits, for which step is no more than this
			next[at].stepStrict(op.Limit, op.Cost, now, &v.Outcomes[i])
		} else {
			next[at].step(op, now, &v.Outcomes[i])
		}
		if !v.Outcomes[i].Admitted {
			v.Admitted = v.Admitted && op.Shadow
			alone = alone || op.Overflows()
		}
		alone = alone || op.ChargesEach()
	}
	if v.Admitted {
		commit(next, now)
	}
	if v.Admitted || len(ops) == 1 { // then nothing was charged, but the refusal may be remembered
		return changes | keep(states, next)
	}
	return changes | decideRefused(states, req, now, v, next, alone)
}

// moveAhead moves the states that lie too far ahead of now, whatever becomes of the request.
func moveAhead(states, next []State, ops []Op, now Instant) (changes Changes) {
	if !anyAhead(now, states) {
		return 0
	}
	copy(next, states)
	moveAllTo(now, next, ops)
	return keep(states, next)
}

// commit makes final what has been done to leases.
func commit(next []State, now Instant) {
	for i := range next {
		next[i].Leases.commit(now)
	}
}

// keep replaces states by next, and says which of them differ, apart from leases.
func keep(states, next []State) (changes Changes) {
	for i := range next {
		if !same(&states[i], &next[i]) {
			changes.add(i)
		}
		states[i] = next[i]
	}
	return changes
}

// same reports whether b is a, leases apart, and not only equal: a changed log may
// have the same length and sum but starts elsewhere.
func same(a, b *State) bool {
	return a.At == b.At && a.N == b.N && a.M == b.M && len(a.Log) == len(b.Log) &&
		(len(a.Log) == 0 || &a.Log[0] == &b.Log[0])
}

// unchanged has changedLeases return what changes from now on, and rememberRefused know what moves.
func unchanged(states []State) {
	for i := range states {
		if set := states[i].Leases; set != nil {
			set.changed, set.journal.moved = false, false
		}
	}
}

// changedLeases says which sets of leases have changed.
func changedLeases(states []State, ops []Op) (changes Changes) {
	for i := range states {
		if set := states[i].Leases; set != nil && set.changed && firstWithKey(ops, i) == i {
			changes.add(i)
		}
	}
	return changes
}

// decideRefused records what a refused request still charges (ops with Each, and
// what overflows) and corrects the outcomes of the ops that are not recorded.
// alone says whether there are any that are.
func decideRefused(states []State, req *Request, now Instant, v *Verdict, next []State, alone bool) (changes Changes) {
	ops := req.Ops
	rollback(next, states)
	var few [MaxChanges]bool
	charged := few[:]
	if len(ops) > len(few) {
		charged = make([]bool, len(ops))
	}
	if alone {
		for i := range ops {
			charged[i] = ops[i].ChargesEach() || ops[i].Cost > 0 && !ops[i].Alternative() && overflowsWith(ops, i, v.Outcomes)
		}
		for i := range ops {
			if charged[i] {
				at := firstWithKey(ops, i)
				next[at], v.Outcomes[i] = Step(next[at], &ops[i], now)
			}
		}
		changes = keep(states, next)
	}
	for i := range ops {
		if op := &ops[i]; op.Limit.Is(Leased) {
			states[firstWithKey(ops, i)].rememberRefused(op, now, &v.Outcomes[i])
		}
	}
	for i := range ops {
		if !charged[i] {
			unrecorded(states[firstWithKey(ops, i)], &ops[i], now, &v.Outcomes[i])
		}
	}
	return changes
}

// rollback makes next what it was before the ops, and takes back what they have done to leases.
func rollback(next, states []State) {
	for i := range next {
		next[i].Leases.rollback()
	}
	copy(next, states)
}

// overflowsWith reports whether an op under the key of the i-th had no room and takes
// something all the same.
func overflowsWith(ops []Op, i int, outs []Outcome) bool {
	for j := range ops {
		if !outs[j].Admitted && ops[j].Overflows() && ops[j].Key == ops[i].Key {
			return true
		}
	}
	return false
}

// unrecorded corrects out, which op got before its request was refused: what
// is left is what s has, without op and without the ops that came before it.
func unrecorded(s State, op *Op, now Instant, out *Outcome) {
	ask := Op{Limit: op.Limit}
	_, left := Step(s, &ask, now)
	out.Remaining, out.Reset = left.Remaining, left.Reset
	if out.Admitted {
		out.InFlight = left.InFlight
	}
	switch {
	case !out.Admitted: // still has to wait
	case op.Cost < 0:
		out.Retry = left.Retry
	default:
		out.Retry = 0
	}
}
