package limit

// Decide answers req at instant now: the reference for every backend's Take.
//
// states[i] is the state under req.Ops[i].Key; where ops share a key, the
// first one's counts and is the one that is updated. Decide replaces the
// states of the ops that are recorded and fills v. scratch is working memory
// of at least len(states); nil lets Decide allocate it.
func Decide(states []State, req *Request, now Instant, v *Verdict, scratch []State) {
	ops := req.Ops
	v.Reset(len(ops))
	v.At, v.Admitted = now, true
	now = bounded(now)
	if len(scratch) < len(ops) {
		scratch = make([]State, len(ops))
	}
	if repeated(states, ops, now) {
		decideRepeated(states, ops, now, v)
		return
	}
	if anyAhead(now, states) {
		moveAllTo(now, states, ops) // whatever becomes of the request
	}
	next := scratch[:len(ops)]
	copy(next, states)
	each := false
	for i := range ops {
		op, at := &ops[i], firstWithKey(ops, i)
		if op.Limit.spec.Algorithm == Concurrency {
			next[at].begin(len(ops))
			next[at], v.Outcomes[i] = stepConcurrency(next[at], op, now, false)
		} else {
			v.Outcomes[i] = next[at].step(op, now)
		}
		if !v.Outcomes[i].Admitted && !op.Shadow {
			v.Admitted = false
		}
		each = each || op.charges()
	}
	if v.Admitted {
		for i := range next {
			next[i].Leases.commit(now)
		}
		copy(states, next)
		return
	}
	decideRefused(states, req, now, v, next, each)
}

// charges says whether op is charged also when its request is refused.
func (op *Op) charges() bool { return op.Each && op.Limit.spec.Algorithm != Concurrency }

// decideRefused records what a refused request still charges (ops with Each)
// and corrects the outcomes of the ops that are not recorded.
func decideRefused(states []State, req *Request, now Instant, v *Verdict, next []State, each bool) {
	ops := req.Ops
	if len(ops) == 1 {
		copy(states, next) // nothing was charged, but the refusal may be remembered
		return
	}
	for i := range next {
		next[i].Leases.rollback()
	}
	copy(next, states)
	if each {
		for i := range ops {
			if ops[i].charges() {
				at := firstWithKey(ops, i)
				next[at], v.Outcomes[i] = Step(next[at], &ops[i], now)
			}
		}
		copy(states, next)
	}
	for i := range ops {
		if op := &ops[i]; op.Limit.spec.Algorithm == Concurrency {
			states[firstWithKey(ops, i)].rememberRefused(op, now, &v.Outcomes[i])
		}
	}
	for i := range ops {
		if op := &ops[i]; !op.charges() {
			unrecorded(states[firstWithKey(ops, i)], op, now, &v.Outcomes[i])
		}
	}
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

// firstWithKey returns the index of the first op with ops[i]'s key.
func firstWithKey(ops []Op, i int) int {
	for j := range ops[:i] {
		if ops[j].Key == ops[i].Key {
			return j
		}
	}
	return i
}
