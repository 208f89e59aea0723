package limit

import "fmt"

// An Overflow says what a limit takes of a cost that has no room. The op is
// refused in any case.
type Overflow uint8

// The overflows.
const (
	// Refuse takes nothing.
	Refuse Overflow = iota
	// Saturate takes what is left.
	Saturate
	// Debt takes what is left and more, down to [Spec.MaxDebt] units below
	// zero. What is owed is paid back, at the limit's own rate, before anything
	// is left again.
	Debt
)

var overflowNames = [...]string{Refuse: "refuse", Saturate: "saturate", Debt: "debt"}

// String returns the name used in rules, such as "saturate".
func (o Overflow) String() string {
	if int(o) < len(overflowNames) {
		return overflowNames[o]
	}
	return fmt.Sprintf("overflow(%d)", uint8(o))
}

// checkOverflow reports what is wrong with s's overflow and debt.
func (s *Spec) checkOverflow(r *row) error {
	switch {
	case int(s.Overflow) >= len(overflowNames):
		return fmt.Errorf("unknown overflow %d", s.Overflow)
	case s.Overflow != Refuse && r.traits&Leased != 0:
		return fmt.Errorf("%s has no overflow: a request in flight is admitted or refused", r.name)
	case s.MaxDebt != 0 && s.Overflow != Debt:
		return fmt.Errorf("max_debt goes with overflow debt, not %v", s.Overflow)
	case s.MaxDebt < 0 || s.MaxDebt > MaxUnits:
		return fmt.Errorf("max_debt %d is outside 1 to %d", s.MaxDebt, int64(MaxUnits))
	}
	return nil
}

// setOverflow computes what decisions need to know of l's overflow.
func (l *Limit) setOverflow() error {
	s := &l.spec
	l.below, l.strict = -1, l
	if s.Overflow == Refuse {
		return nil
	}
	strict := *l
	strict.spec.Overflow, strict.spec.MaxDebt = Refuse, 0
	strict.ahead = max(strict.ahead, MinAhead.Microseconds())
	strict.strict = &strict
	l.below, l.strict = 0, &strict
	if s.Overflow == Saturate {
		return nil
	}
	most := l.mostDebt()
	if s.MaxDebt > most {
		return fmt.Errorf("max_debt %d takes longer than 10 years to pay back; at most %d does not", s.MaxDebt, most)
	}
	if s.MaxDebt == 0 {
		s.MaxDebt = min(l.capacity, most)
	}
	if l.below = s.MaxDebt; !l.Is(Windowed) && l.below > 0 {
		l.owe = ceilDiv(l.below*l.num, l.den)
		l.ahead += l.owe
	}
	return nil
}

// mostDebt returns the largest debt that is paid back within MaxWindow, and with
// which all figures are exact.
func (l *Limit) mostDebt() int64 {
	if l.capacity == 0 {
		return 0
	}
	longest := MaxWindow.Microseconds()
	if l.Is(Windowed) {
		windows := longest / l.window
		return min(MaxUnits, l.capacity*min(windows, MaxUnits/l.capacity))
	}
	if l.num == 0 && !l.setInterval(l.capacity) {
		return 0
	}
	most := min(MaxUnits, maxExact/l.num-l.capacity)
	if longest/l.num < MaxUnits/l.den {
		most = min(most, longest*l.den/l.num)
	}
	return max(most, 0)
}

// Overflow returns what l takes of a cost that has no room.
func (l *Limit) Overflow() Overflow { return l.spec.Overflow }

// MaxDebt returns how many units below zero l can be: 0 unless its overflow is
// Debt.
func (l *Limit) MaxDebt() int64 { return l.spec.MaxDebt }

// Below returns MaxDebt, or -1 if l takes nothing of a cost that has no room. It
// is for drivers that hand limits to code elsewhere.
func (l *Limit) Below() int64 { return l.below }

// Strict returns l with the overflow Refuse.
func (l *Limit) Strict() *Limit { return l.strict }

// WithOverflow returns l with another overflow. maxDebt 0 means that of
// [Spec.MaxDebt].
func (l *Limit) WithOverflow(o Overflow, maxDebt int64) (*Limit, error) {
	s := l.spec
	s.Overflow, s.MaxDebt = o, maxDebt
	other, err := New(s)
	if err != nil {
		return nil, err
	}
	return other.WithShare(l.share), nil
}

// Overflows reports whether op takes something when it has no room.
func (op *Op) Overflows() bool { return op.Cost > 0 && op.Limit.below >= 0 && !op.Alternative() }

// Debt in windows: used is above the capacity, and each window pays for that
// much of it.

// spill returns what an op of this cost takes of a window limit of which used
// units are gone.
func (l *Limit) spill(cost, used int64) int64 {
	return max(min(cost, l.capacity+l.below-used), 0)
}

// cut returns used without what is more than l lets anybody owe.
func (l *Limit) cut(used int64) int64 {
	if l.below <= 0 {
		return used
	}
	return min(used, l.capacity+l.below)
}

// passed returns how many windows of l begin after at, up to start, at which one
// begins.
func (l *Limit) passed(at, start Instant) int64 {
	at = max(at, 0)
	return int64(start-(at-at%Instant(l.window))) / l.window
}

// owed returns what is left of used units after so many windows have paid.
func (l *Limit) owed(used, windows int64) int64 {
	if l.below <= 0 || windows >= ceilDiv(used, l.capacity) {
		return 0
	}
	return used - windows*l.capacity
}

// windowsFor returns how many windows must begin until n units fit where used
// are gone, one at least.
func (l *Limit) windowsFor(used, n int64) int64 {
	if l.below <= 0 {
		return 1
	}
	return max(1, ceilDiv(used+n-l.capacity, l.capacity))
}

// Debt of logs and buckets: the state lies ahead of now by the time that it takes
// to pay back. Until then nothing is left, as for an op that comes too early.

// mayOwe returns how many units more may be owed by a state that lies ahead µs
// ahead of its op.
func (l *Limit) mayOwe(ahead int64) int64 {
	if ahead >= l.owe {
		return 0
	}
	return (l.below*l.num - ahead*l.den) / l.num
}

// later returns at moved by d µs.
func later(at Instant, d int64) Instant { return bounded(at + Instant(d)) }

// payBack uses a negative cost to pay what is owed first. It returns what is left of
// the cost.
func (s *State) payBack(op *Op, now Instant) (rest int64) {
	l, rest := op.Limit, max(op.Cost, -2*MaxUnits)
	if s.At <= now || l.owe == 0 {
		return rest
	}
	s.moveTo(now, l)
	ahead := int64(min(s.At, MaxInstant) - now)
	if ahead <= 0 {
		return rest
	}
	owed, by := l.below, ahead
	if ahead < l.owe {
		owed = ceilDiv(ahead*l.den, l.num)
	}
	paid := min(-rest, owed)
	if paid < owed {
		by = min(paid*l.num/l.den, ahead)
	}
	if l.Is(Logged) {
		log, used := s.live(min(s.At, MaxInstant) - Instant(l.window))
		*s = shifted(log, used, -by)
	} else {
		s.At = min(s.At, MaxInstant) - Instant(by)
	}
	return rest + paid
}
