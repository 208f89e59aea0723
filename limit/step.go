package limit

// Step decides op alone on state s at instant now. It returns the state with
// the op recorded, or s unchanged when the op took nothing, as one that is refused
// does unless its limit's [Overflow] says otherwise.
//
// It is total: any state, cost and instant give an answer, and negative
// figures in a state count as zero. Time does not run backwards for a key: an
// instant up to a window before the state's own (for a token bucket at most the
// time it needs to fill; at least MinAhead) counts as that one, and the waits
// in the outcome are still measured from now. A state that lies further ahead
// was written by a clock that has stepped back since: it moves to now, with
// what was taken, also when the op is refused or takes nothing.
//
// The returned state may share memory with s, which must not be used any more
// if the returned one is kept. A Concurrency limit's state changes in place.
func Step(s State, op *Op, now Instant) (State, Outcome) {
	now = bounded(now)
	if op.Limit.Is(Leased) {
		return stepConcurrency(s, op, now, true)
	}
	var out Outcome
	s.step(op, now, &out)
	return s, out
}

// Ends returns the instant from which s is as good as an unused key under l.
// A store may drop the state then, and must keep it until then.
func (l *Limit) Ends(s State) Instant {
	s.At = min(max(s.At, 0), MaxInstant)
	return l.row.ends(l, s)
}
