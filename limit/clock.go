package limit

// A clock can step back: it is corrected, or a replica with another one takes
// over. An op at an instant shortly before its state's own came out of order,
// and counts as if it came then. But a state that lies further ahead than a
// window would refuse everybody until the clock has caught up, so it moves to
// now, with all that was taken: no step of the clock gives anybody more than an
// unused key does.

// moveTo moves s, whose instant is after now, to now if it lies too far ahead:
// by more than a window, or for a bucket the time it needs to fill if that is
// less, and by more than MinAhead.
func (s *State) moveTo(now Instant, l *Limit) {
	if s.At-now > Instant(l.ahead) && l.row.moveTo != nil {
		*s = l.row.moveTo(l, *s, now)
	}
}

// moveAllTo moves the states of a request's ops to now as moveTo does.
func moveAllTo(now Instant, states []State, ops []Op) {
	for i := range ops {
		if s := &states[firstWithKey(ops, i)]; s.At > now {
			s.moveTo(now, ops[i].Limit)
		}
	}
}

// anyAhead reports whether one of the states lies ahead of now.
func anyAhead(now Instant, states []State) bool {
	for i := range states {
		if states[i].At > now {
			return true
		}
	}
	return false
}

// maxMoved bounds the leases that one op moves. They are the last to expire;
// the next op moves more.
const maxMoved = 1000

// moveTo moves the end of leases that expire later than one that l grants a
// window from now: they expire with those that l grants now. Only an acquire
// calls it, because other ops may name a limit with another window.
func (s *LeaseSet) moveTo(now Instant, l *Limit) {
	s.journal.moved = true
	var far []queued
	for i := len(s.queue) - 1; i >= 0 && len(far) < maxMoved && l.farAhead(expiry(s.queue[i].score), l.window, now); i-- {
		if s.current(s.queue[i]) {
			far = append(far, s.queue[i])
		}
	}
	for _, q := range far {
		s.set(q.holder, q.score, scoreAt(now+Instant(l.window), q.score%8))
	}
}

// farAhead reports whether at is too far ahead of now to be the end of a lease or
// refusal that lives for life µs.
func (l *Limit) farAhead(at Instant, life int64, now Instant) bool {
	return int64(at-now) > life+l.ahead
}

// moveRefused does with refusals what moveTo does with leases.
func (s *LeaseSet) moveRefused(now Instant, l *Limit) {
	n := len(s.refused)
	for n > 0 && l.farAhead(s.refused[n-1].At, l.hold, now) {
		n--
	}
	var sum int64
	for _, r := range s.refused[n:] {
		sum += r.N
	}
	s.changed = s.changed || sum > 0
	s.refused = s.refused[:n]
	if sum > 0 && l.hold > 0 {
		s.addRefused(now, l, sum)
	}
}
