package limit

// Fixed window: windows are [k*W, (k+1)*W) since the Unix epoch, or those of a
// calendar.

func stepFixedWindow(l *Limit, s *State, cost int64, now Instant, out *Outcome) {
	start := now - now%Instant(l.window)
	end := start + Instant(l.window)
	if l.calendar != nil {
		start, end = l.calendar.window(now)
	}
	used := max(s.N, 0)
	if l.below > 0 {
		used = l.usedInWindow(s, start)
	} else if s.At < start {
		used = 0
	}
	wait := int64(end - now)
	admitted := fits(used, cost, l.capacity)
	if admitted && cost != 0 {
		if cost > 0 {
			used += cost
		} else {
			used -= refund(cost, used)
		}
		s.At, s.N = start, used
	}
	out.Admitted, out.Remaining, out.Reset = admitted, max(l.capacity-used, 0), micros(wait)
	if used > l.capacity {
		out.Reset += micros((l.windowsFor(used, l.capacity) - 1) * l.window)
	}
	switch n := wanted(cost); {
	case n > l.capacity:
		out.Retry = Never
	case n > l.capacity-used:
		out.Retry = micros(wait + (l.windowsFor(used, n)-1)*l.window)
	}
}

// usedInWindow returns how many units are gone in the window that begins at
// start, with those that are owed from the windows before.
func (l *Limit) usedInWindow(s *State, start Instant) int64 {
	used := l.cut(max(s.N, 0))
	if s.At < start {
		return l.owed(used, l.passed(s.At, start))
	}
	return used
}

func overflowFixedWindow(l *Limit, s *State, cost int64, now Instant) (taken int64) {
	start, _ := l.windowOf(now)
	used := l.usedInWindow(s, start)
	if taken = l.spill(cost, used); taken > 0 {
		s.At, s.N = start, used+taken
	}
	return taken
}

func endsFixedWindow(l *Limit, s State) Instant {
	if l.calendar != nil {
		return l.WindowEnd(s.At)
	}
	return s.At + Instant(l.windowsFor(l.cut(s.N), l.capacity)*l.window)
}

// moveWindow moves what was taken to the window that now is in. Windows of a
// calendar differ in length, so that here it is known which one is the next.
func moveWindow(l *Limit, s State, now Instant) State {
	if l.calendar == nil {
		s.At = now - now%Instant(l.window)
	} else if w := l.calendar.at(now); s.At >= w.next {
		s.At = w.start
	}
	return s
}

// fits reports whether cost has room where used of capacity units are gone. Used
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

func stepSlidingWindow(l *Limit, s *State, cost int64, now Instant, out *Outcome) {
	start := now - now%Instant(l.window)
	cur, prev := min(max(s.N, 0), maxExact), min(max(s.M, 0), maxExact)
	if l.below > 0 {
		cur, prev = l.slide(s, start)
	} else if s.At < start {
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
	out.Admitted, out.Remaining = admitted, max(l.capacity-cur-weighted, 0)
	switch {
	case cur > 0:
		out.Reset = micros(rest + l.windowsFor(cur, l.capacity)*l.window)
	case prev > 0:
		out.Reset = micros(rest)
	}
	switch n := wanted(cost); {
	case n > l.capacity:
		out.Retry = Never
	case n > l.capacity-cur-weighted:
		out.Retry = micros(l.slidingRetry(cur, prev, rest, n))
	}
}

// slide returns how many units are gone in the window that begins at start, with
// those that are owed from the windows before, and in the one before.
func (l *Limit) slide(s *State, start Instant) (cur, prev int64) {
	cur, prev = l.cut(min(max(s.N, 0), maxExact)), min(max(s.M, 0), maxExact)
	if s.At >= start {
		return cur, prev
	}
	if l.below > 0 {
		n := l.passed(s.At, start)
		return l.owed(cur, n), min(l.owed(cur, n-1), l.capacity)
	}
	if s.At < start-Instant(l.window) {
		return 0, 0
	}
	return 0, cur
}

func overflowSlidingWindow(l *Limit, s *State, cost int64, now Instant) (taken int64) {
	start := now - now%Instant(l.window)
	cur, prev := l.slide(s, start)
	weighted := l.weigh(prev, int64(start)+l.window-int64(now))
	if taken = l.spill(cost, cur+weighted); taken > 0 {
		*s = State{At: start, N: cur + taken, M: prev}
	}
	return taken
}

func endsSlidingWindow(l *Limit, s State) Instant {
	if s.N > 0 {
		return s.At + Instant((1+l.windowsFor(l.cut(s.N), l.capacity))*l.window)
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
	if l.below <= 0 {
		return rest + l.window - l.restFor(cur, l.capacity-n)
	}
	windows := l.windowsFor(cur, n)
	prev, cur = min(l.owed(cur, windows-1), l.capacity), l.owed(cur, windows)
	return rest + windows*l.window - l.restFor(prev, l.capacity-n-cur)
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
