package limit

// Fixed window: windows are [k*W, (k+1)*W) since the Unix epoch.

func stepFixedWindow(l *Limit, s *State, cost int64, now Instant) Outcome {
	start := now - now%Instant(l.window)
	used := max(s.N, 0)
	if s.At < start {
		used = 0
	}
	wait := int64(start) + l.window - int64(now)
	admitted := fits(used, cost, l.capacity)
	if admitted && cost != 0 {
		if cost > 0 {
			used += cost
		} else {
			used -= refund(cost, used)
		}
		s.At, s.N = start, used
	}
	out := Outcome{Admitted: admitted, Remaining: max(l.capacity-used, 0), Reset: micros(wait)}
	switch {
	case wanted(cost) > l.capacity:
		out.Retry = Never
	case wanted(cost) > l.capacity-used:
		out.Retry = micros(wait)
	}
	return out
}

func endsFixedWindow(l *Limit, s State) Instant { return s.At + Instant(l.window) }

// moveWindow moves what was taken to the window that now is in.
func moveWindow(l *Limit, s State, now Instant) State {
	s.At = now - now%Instant(l.window)
	return s
}

// fits says whether cost has room where used of capacity units are gone. Used
// can exceed capacity after the limit was lowered.
func fits(used, cost, capacity int64) bool {
	return cost < 0 || wanted(cost) <= capacity-used
}

// Sliding window: what was taken in the previous window of the grid counts in
// the share of it that the window (now-W, now] still covers. That share falls
// in up to 2^20 equal steps, counted from the window's start so that it is
// rounded up also where they do not divide the window; so is the product.

func prepareGrid(l *Limit) error {
	l.cell = (l.window + gridSteps - 1) / gridSteps
	l.cells = (l.window + l.cell - 1) / l.cell
	return nil
}

func stepSlidingWindow(l *Limit, s *State, cost int64, now Instant) Outcome {
	start := now - now%Instant(l.window)
	cur, prev := min(max(s.N, 0), maxExact), min(max(s.M, 0), maxExact)
	if s.At < start {
		cur, prev = 0, cur
		if s.At < start-Instant(l.window) {
			prev = 0
		}
	}
	rest := int64(start) + l.window - int64(now) // of the current window, µs, 1..W
	weighted := l.weigh(prev, rest)
	admitted := fits(cur+weighted, cost, l.capacity)
	if admitted && cost != 0 {
		if cost > 0 {
			cur += cost
		} else {
			back := refund(cost, cur+prev)
			fromCur := min(back, cur)
			cur, prev = cur-fromCur, prev-(back-fromCur)
			weighted = l.weigh(prev, rest)
		}
		*s = State{At: start, N: cur, M: prev}
	}
	out := Outcome{Admitted: admitted, Remaining: max(l.capacity-cur-weighted, 0)}
	switch {
	case cur > 0:
		out.Reset = micros(rest + l.window)
	case prev > 0:
		out.Reset = micros(rest)
	}
	switch n := wanted(cost); {
	case n > l.capacity:
		out.Retry = Never
	case n > l.capacity-cur-weighted:
		out.Retry = micros(l.slidingRetry(cur, prev, rest, n))
	}
	return out
}

func endsSlidingWindow(l *Limit, s State) Instant {
	if s.N > 0 {
		return s.At + Instant(2*l.window)
	}
	return s.At + Instant(l.window)
}

// weigh returns how much of count units of a window still counts when rest
// microseconds of the next one are left.
func (l *Limit) weigh(count, rest int64) int64 {
	count = min(count, MaxSlidingWindowUnits)
	return ceilDiv(count*(l.cells-(l.window-rest)/l.cell), l.cells)
}

// slidingRetry returns the wait until n units fit: within the current window
// while the previous one fades, or in the next one while this one fades.
func (l *Limit) slidingRetry(cur, prev, rest, n int64) int64 {
	if room := l.capacity - n - cur; room >= 0 {
		return rest - l.restFor(prev, room)
	}
	return rest + l.window - l.restFor(cur, l.capacity-n)
}

// restFor returns the largest rest of a window at which count units of the
// one before weigh at most room.
func (l *Limit) restFor(count, room int64) int64 {
	count = min(count, MaxSlidingWindowUnits)
	if count <= room {
		return l.window
	}
	return max(l.window-(l.cells-room*l.cells/count)*l.cell, 0)
}
