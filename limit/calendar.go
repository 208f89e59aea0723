package limit

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Windows of the calendar. A day has 23 to 25 hours where clocks change, a month
// 28 to 31 days. Instants know nothing of this: a limit says where the window of an
// instant begins and ends, and everything else is as for windows of one length.

// A period is what windows of the calendar follow.
type period struct {
	nominal time.Duration // the Window of a Spec that means it
	// number returns which period a date is in. begin returns the first date of
	// one, in UTC.
	number func(t time.Time) int
	begin  func(n int) time.Time
}

var periods = [...]period{
	{24 * time.Hour, dayNumber, func(n int) time.Time { return date(1970, 1, 1+n) }},
	// Weeks begin on Monday; the epoch was a Thursday.
	{7 * 24 * time.Hour, func(t time.Time) int { return (dayNumber(t) + 3) / 7 },
		func(n int) time.Time { return date(1970, 1, 7*n-2) }},
	{30 * 24 * time.Hour, func(t time.Time) int { return 12*t.Year() + int(t.Month()) - 1 },
		func(n int) time.Time { return date(n/12, n%12+1, 1) }},
	{365 * 24 * time.Hour, time.Time.Year, func(n int) time.Time { return date(n, 1, 1) }},
}

func date(year, month, day int) time.Time {
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
}

// dayNumber returns how many days after the epoch the date of t is, at least -1.
func dayNumber(t time.Time) int {
	y, m, d := t.Date()
	return int(date(y, int(m), d).Unix() / 86400)
}

// A calendar is a period in a time zone.
type calendar struct {
	*period
	zone *time.Location
	last atomic.Pointer[span] // the window that was asked for last; to find it takes a microsecond
}

// A span is a window of a calendar, from start until before end. The one after it
// ends before next.
type span struct{ start, end, next Instant }

// periodOf returns the period that a window stands for; nil means none.
func periodOf(window time.Duration) *period {
	for i := range periods {
		if periods[i].nominal == window {
			return &periods[i]
		}
	}
	return nil
}

// HasCalendar reports whether window is the length of days, weeks, months or years, as
// [Spec.Calendar] wants it.
func HasCalendar(window time.Duration) bool { return periodOf(window) != nil }

// checkCalendar reports what is wrong with s's calendar.
func (s *Spec) checkCalendar() error {
	switch {
	case !s.Calendar && s.Zone != nil:
		return fmt.Errorf("a time zone goes with calendar windows")
	case !s.Calendar:
	case s.Algorithm != FixedWindow:
		return fmt.Errorf("%v has no calendar; only %v does", s.Algorithm, FixedWindow)
	case !HasCalendar(s.Window):
		return fmt.Errorf("calendar windows are a day, a week, a month or a year, not %v", s.Window)
	case s.Overflow == Debt:
		return fmt.Errorf("calendar windows have no overflow debt, because they have no length to pay back in; " +
			"saturate is possible")
	}
	return nil
}

// setCalendar computes what decisions need of l's calendar.
func (l *Limit) setCalendar() {
	if !l.spec.Calendar {
		return
	}
	if l.spec.Zone == nil {
		l.spec.Zone = time.UTC
	}
	l.calendar = &calendar{period: periodOf(l.spec.Window), zone: l.spec.Zone}
	l.ahead = 0 // moveWindow says what lies too far ahead
}

// first returns the first instant, in seconds, at which the clocks of the zone show
// the beginning of period n, or later if they skip it.
func (c *calendar) first(n int) int64 {
	const most = 16 * 3600 // that a zone differs from UTC
	civil := c.begin(n).Unix()
	from, to := civil-most, civil+most
	before, after := c.offset(from), c.offset(to)
	if before == after {
		return civil - before
	}
	// Clocks change between from and to. (Time.ZoneBounds would say when, but is
	// wrong in some years to come.)
	for to-from > 1 {
		if mid := from + (to-from)/2; c.offset(mid) == before {
			from = mid
		} else {
			to = mid
		}
	}
	if civil-before < to {
		return civil - before
	}
	return max(civil-after, to)
}

// offset returns how many seconds the clocks are ahead of UTC.
func (c *calendar) offset(at int64) int64 {
	_, offset := time.Unix(at, 0).In(c.zone).Zone()
	return int64(offset)
}

// at returns the window of an instant.
func (c *calendar) at(at Instant) *span {
	s := c.last.Load()
	if s == nil || at < s.start || at >= s.end {
		s = c.find(at)
		c.last.Store(s)
	}
	return s
}

func (c *calendar) window(at Instant) (start, end Instant) {
	s := c.at(at)
	return s.start, s.end
}

func (c *calendar) find(at Instant) *span {
	t := time.UnixMicro(int64(at)).In(c.zone)
	n := c.number(t)
	begin, then := c.first(n), c.first(n+1)
	for begin > t.Unix() { // clocks were changed twice within hours
		n--
		begin, then = c.first(n), begin
	}
	for then <= t.Unix() { // clocks were set back over the end
		n++
		begin, then = then, c.first(n+1)
	}
	after := c.first(n + 2)
	for after <= then { // a day that a zone has skipped
		n++
		after = c.first(n + 2)
	}
	return &span{max(seconds(begin), 0), seconds(then), seconds(after)}
}

func seconds(n int64) Instant { return Instant(n * 1_000_000) }

// WithCalendar returns l with the windows of the calendar in a zone, nil for UTC.
func (l *Limit) WithCalendar(zone *time.Location) (*Limit, error) {
	s := l.spec
	s.Calendar, s.Zone = true, zone
	other, err := New(s)
	if err != nil {
		return nil, err
	}
	return other.WithShare(l.share), nil
}

// Calendar reports whether the limit's windows are those of the calendar.
func (l *Limit) Calendar() bool { return l.calendar != nil }

// CalendarWindows returns when the calendar window that at is in begins and ends,
// and when the one after it ends. It is for drivers that hand limits to code
// elsewhere. Only limits with a [Limit.Calendar] have them.
func (l *Limit) CalendarWindows(at Instant) (start, end, next Instant) {
	s := l.calendar.at(bounded(at))
	return s.start, s.end, s.next
}

// windowOf returns when the window of at begins and ends, for an [Aligned] limit.
func (l *Limit) windowOf(at Instant) (start, end Instant) {
	if l.calendar != nil {
		return l.calendar.window(at)
	}
	start = at - at%Instant(l.window)
	return start, start + Instant(l.window)
}
