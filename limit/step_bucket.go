package limit

// Token bucket: the level rises by den per microsecond up to full, and one
// unit costs num; see Limit.Interval. Fractions of a unit are
// kept, so a key that is asked often refills as fast as one that is not.

// level returns s's level at instant now >= s.At, in 1/den µs. A level that
// another limit wrote keeps its whole units: lowering the burst cuts it off,
// raising it gives nothing at once.
func (l *Limit) level(s *State, now Instant) int64 {
	if s.M <= 0 {
		return l.full
	}
	level := max(s.N, 0)
	if s.M != l.num {
		level = min(level/s.M, l.capacity) * l.num
	}
	level = min(level, l.full)
	if gained := int64(now - min(max(s.At, 0), now)); gained < ceilDiv(l.full-level, l.den) {
		return level + gained*l.den
	}
	return l.full
}

func stepTokenBucket(s *State, op *Op, now Instant) Outcome {
	l := op.Limit
	level := l.level(s, now)
	admitted := op.Cost < 0 || op.wanted() <= level/l.num
	if admitted && op.Cost != 0 {
		if op.Cost > 0 {
			level -= op.Cost * l.num
		} else {
			level += min(op.refund(l.capacity)*l.num, l.full-level)
		}
		*s = State{At: now, N: level, M: l.num}
	}
	out := Outcome{
		Admitted:  admitted,
		Remaining: level / l.num,
		Reset:     micros(ceilDiv(l.full-level, l.den)),
	}
	switch n := op.wanted(); {
	case n > l.capacity:
		out.Retry = Never
	case n*l.num > level:
		out.Retry = micros(ceilDiv(n*l.num-level, l.den))
	}
	return out
}
