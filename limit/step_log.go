package limit

// Sliding log: every admission is kept for one window, so that the half-open
// interval (now-W, now] is counted exactly.

func stepSlidingLog(l *Limit, s *State, cost int64, now Instant, out *Outcome) {
	log, used := s.live(now - Instant(l.window))
	admitted := fits(used, cost, l.capacity)
	if admitted && cost != 0 {
		if cost > 0 {
			log = append(log, Record{At: now, N: cost})
			used += cost
		} else {
			back := refund(cost, used)
			log = withoutNewest(log, back)
			used -= back
		}
		*s = State{N: used, Log: log}
		if len(log) > 0 {
			s.At = log[len(log)-1].At
		}
	}
	out.Admitted, out.Remaining = admitted, max(l.capacity-used, 0)
	if len(log) > 0 {
		out.Reset = micros(int64(log[len(log)-1].At) + l.window - int64(now))
	}
	switch n := wanted(cost); {
	case n > l.capacity:
		out.Retry = Never
	case n > l.capacity-used:
		out.Retry = micros(int64(whenFreed(log, n-(l.capacity-used))) + l.window - int64(now))
	}
}

// debtRecords is how many records a log that owes has at most: for the others
// its units count with the next of these.
const debtRecords = 64

// overflowLog takes what a cost takes that has no room. For what it owes, all
// units leave the window later: the log stands still until that is paid.
func overflowLog(l *Limit, s *State, cost int64, now Instant, ahead int64) (taken int64) {
	log, used := s.live(now - Instant(l.window))
	left := max(l.capacity-used, 0)
	owe := min(cost-left, l.mayOwe(ahead))
	if taken = left + owe; taken <= 0 {
		return 0
	}
	if left > 0 {
		log = append(log, Record{At: now, N: left})
	}
	if owe > 0 {
		*s = shifted(log, used+left, ceilDiv(owe*l.num, l.den))
	} else {
		*s = State{At: log[len(log)-1].At, N: used + left, Log: log}
	}
	return taken
}

// shifted returns the state of a log of so many units with each record moved by
// d µs, and no more than debtRecords of them: units of a part count as if they had
// come with its last one, so that none is free too early.
func shifted(log []Record, units, d int64) State {
	kept := make([]Record, 0, min(units, debtRecords))
	i, seen, done := 0, int64(0), int64(0)
	for part := int64(1); part <= debtRecords && len(log) > 0; part++ {
		end := ceilDiv(part*units, debtRecords)
		for i < len(log)-1 && seen+log[i].N < end {
			seen += log[i].N
			i++
		}
		switch at, last := later(log[i].At, d), len(kept)-1; {
		case end == done:
		case last >= 0 && kept[last].At == at:
			kept[last].N += end - done
		default:
			kept = append(kept, Record{At: at, N: end - done})
		}
		done = end
	}
	if len(kept) == 0 {
		return State{}
	}
	return State{At: kept[len(kept)-1].At, N: units, Log: kept}
}

func moveLog(l *Limit, s State, now Instant) State {
	_, used := s.live(now - Instant(l.window))
	if used == 0 {
		return State{}
	}
	return State{At: now, N: used, Log: []Record{{At: now, N: used}}}
}

func endsLog(l *Limit, s State) Instant {
	if n := len(s.Log); n > 0 {
		return s.Log[n-1].At + Instant(l.window)
	}
	return s.At
}

// Coarser returns a SlidingLog's state with about half the records: of each two
// neighbours the earlier counts as if it had come with the later. So units count
// for longer, by the time between the two, and none is free too early.
func (s State) Coarser() State {
	log := make([]Record, 0, (len(s.Log)+1)/2)
	for i := 0; i < len(s.Log); i += 2 {
		r := s.Log[i]
		if i+1 < len(s.Log) {
			r = Record{At: s.Log[i+1].At, N: r.N + s.Log[i+1].N}
		}
		log = append(log, r)
	}
	s.Log = log
	return s
}

// live returns the records after edge and their sum.
func (s *State) live(edge Instant) ([]Record, int64) {
	used := s.N
	for i := range s.Log {
		if s.Log[i].At > edge {
			return s.Log[i:], max(used, 0)
		}
		used -= s.Log[i].N
	}
	return nil, 0
}

// whenFreed returns the instant of the record with whose end n units are free.
func whenFreed(log []Record, n int64) (at Instant) {
	for i := range log {
		at = log[i].At
		if n -= log[i].N; n <= 0 {
			break
		}
	}
	return at
}

// withoutNewest returns a copy of log that lacks the newest n units. It is a
// copy because the caller may still discard it.
func withoutNewest(log []Record, n int64) []Record {
	end := len(log)
	for end > 0 && n >= log[end-1].N {
		end--
		n -= log[end].N
	}
	if end == 0 {
		return nil
	}
	kept := append([]Record(nil), log[:end]...)
	kept[end-1].N -= n
	return kept
}
