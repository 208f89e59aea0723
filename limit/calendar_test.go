package limit

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

// TestCalendarWindows: windows begin and end where the calendar's days, weeks, months
// and years do: across leap years, changes of clocks and the end of a year.
func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct {
		window           time.Duration
		zone, at         string
		start, end, next string
	}{
		{30 * day, "UTC", "2024-02-29T23:59:59.999999Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z",
			"2024-04-01T00:00:00Z"},
		{30 * day, "UTC", "2023-02-28T12:00:00Z", "2023-02-01T00:00:00Z", "2023-03-01T00:00:00Z", "2023-04-01T00:00:00Z"},
		{30 * day, "UTC", "2100-02-28T12:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z", "2100-04-01T00:00:00Z"},
		{30 * day, "UTC", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"},
		{30 * day, "UTC", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z"},
		{30 * day, "Europe/Berlin", "2026-03-31T21:59:59Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z",
			"2026-04-30T22:00:00Z"},
		{30 * day, "America/New_York", "2026-03-01T05:00:00Z", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z",
			"2026-05-01T04:00:00Z"},
		{365 * day, "UTC", "2024-12-31T23:00:00Z", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		{365 * day, "Pacific/Kiritimati", "2026-12-31T10:00:00Z", "2026-12-31T10:00:00Z", "2027-12-31T10:00:00Z",
			"2028-12-31T10:00:00Z"},
		// 23 hours
		{day, "Europe/Berlin", "2026-03-29T10:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z",
			"2026-03-30T22:00:00Z"},
		// 25 hours
		{day, "Europe/Berlin", "2026-10-25T10:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z",
			"2026-10-26T23:00:00Z"},
		{day, "UTC", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z", "1970-01-03T00:00:00Z"},
		// a Sunday
		{7 * day, "UTC", "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{7 * day, "UTC", "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z", "2027-01-11T00:00:00Z"},
		{7 * day, "UTC", "1970-01-04T23:00:00Z", "1970-01-01T00:00:00Z", "1970-01-05T00:00:00Z", "1970-01-12T00:00:00Z"},
		// Clocks that skip midnight: the day begins at one o'clock.
		{day, "America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z",
			"2018-11-06T02:00:00Z"},
		{day, "America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z",
			"2018-11-05T02:00:00Z"},
		// Clocks that were set back from 00:01 to 23:01: a day that has begun does not end.
		{day, "America/St_Johns", "2010-11-07T02:35:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z",
			"2010-11-09T03:30:00Z"},
		// Time.ZoneBounds is wrong at the beginning of 2041.
		{day, "Europe/Berlin", "2041-01-01T12:00:00Z", "2040-12-31T23:00:00Z", "2041-01-01T23:00:00Z",
			"2041-01-02T23:00:00Z"},
		{365 * day, "Australia/Lord_Howe", "2041-05-01T12:00:00Z", "2040-12-31T13:00:00Z", "2041-12-31T13:00:00Z",
			"2042-12-31T13:00:00Z"},
		// A zone that skipped December 30.
		{day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{day, "Pacific/Apia", "2011-12-29T09:59:59Z", "2011-12-28T10:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
	} {
		l := MustNew(Spec{Algorithm: FixedWindow, Max: 1, Window: c.window, Calendar: true, Zone: zone(t, c.zone)})
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		start, end, next := l.CalendarWindows(InstantOf(at))
		for _, p := range []struct {
			what, want string
			got        Instant
		}{{"begins", c.start, start}, {"ends", c.end, end}, {"is followed until", c.next, next}} {
			if got := p.got.Time().Format(time.RFC3339Nano); got != p.want {
				t.Errorf("%v %s: the window of %s %s %s, want %s", c.window, c.zone, c.at, p.what, got, p.want)
			}
		}
	}
}

// TestCalendarWindowsTile: whatever the zone, windows follow each other without a gap
// or an overlap, and each instant is in the window that it is said to be in. Dates are
// read from the clock, hour by hour: a window begins when a date is shown that was never
// shown before.
func TestCalendarWindowsTile(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Sao_Paulo",
		"America/Havana", "Africa/Cairo", "Africa/Casablanca", "Asia/Beirut", "Asia/Tehran", "Asia/Kathmandu", "Pacific/Apia",
		"Pacific/Kiritimati", "Pacific/Kwajalein", "Antarctica/Troll", "Australia/Lord_Howe", "Atlantic/Azores"} {
		loc, first := zone(t, name), 2009
		if name == "Africa/Cairo" || name == "Asia/Beirut" {
			first = 2022
		}
		for _, window := range []time.Duration{day, 7 * day, 30 * day, year} {
			l := MustNew(Spec{Algorithm: FixedWindow, Max: 1, Window: window, Calendar: true, Zone: loc})
			id := func(at time.Time) int {
				y, m, d := at.In(loc).Date()
				switch window {
				case day:
					return y*10000 + int(m)*100 + d
				case 7 * day:
					y, w := at.In(loc).ISOWeek()
					return y*100 + w
				case 30 * day:
					return y*100 + int(m)
				}
				return y
			}
			shown, began := 0, Instant(-1)
			var last [3]Instant
			for at := time.Date(first, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < first+3; at = at.Add(30 * time.Minute) {
				now := InstantOf(at)
				start, end, next := l.CalendarWindows(now)
				if start > now || end <= now || next <= end {
					t.Fatalf("%s %v: %v is in %v to %v, then %v", name, window, at, start.Time(), end.Time(), next.Time())
				}
				if last[2] != 0 && start != last[0] && (start != last[1] || end != last[2]) {
					t.Fatalf("%s %v: after %v to %v comes %v to %v", name, window, last[0].Time(), last[1].Time(),
						start.Time(), end.Time())
				}
				last = [3]Instant{start, end, next}
				if n := id(at); n > shown {
					if shown, began = n, now; shown != 0 && at.Year() > first && start != now && now-start >= micro(30*time.Minute) {
						t.Fatalf("%s %v: %v shows a new date, but its window began at %v", name, window, at, start.Time())
					}
				} else if start > began && at.Year() > first {
					t.Fatalf("%s %v: %v shows no new date, but its window began at %v", name, window, at, start.Time())
				}
			}
		}
	}
}

// TestCalendarThatCannotBe: what contradicts a calendar is refused, with the reason.
func TestCalendarThatCannotBe(t *testing.T) {
	for want, s := range map[string]Spec{
		"a time zone goes with calendar windows": {Algorithm: FixedWindow, Max: 1,
			Window: day, Zone: time.UTC},
		"sliding_window has no calendar; only fixed_window does": {Algorithm: SlidingWindow, Max: 1,
			Window: day, Calendar: true},
		"calendar windows are a day, a week, a month or a year, not 1h0m0s": {Algorithm: FixedWindow, Max: 1,
			Window: time.Hour, Calendar: true},
		"calendar windows have no overflow debt, because they have no length to pay": {Algorithm: FixedWindow, Max: 1,
			Window: day, Calendar: true, Overflow: Debt},
	} {
		if _, err := New(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// TestCalendarIsTheSameWhenItsZoneIsLoadedAgain: a reload of rules changes nothing.
func TestCalendarIsTheSameWhenItsZoneIsLoadedAgain(t *testing.T) {
	in := func(name string) *Limit {
		return MustNew(Spec{Algorithm: FixedWindow, Max: 1, Window: day, Calendar: true, Zone: zone(t, name)})
	}
	if !in("Europe/Berlin").Same(in("Europe/Berlin")) || in("Europe/Berlin").Same(in("Europe/Paris")) ||
		in("UTC").Same(MustNew(Spec{Algorithm: FixedWindow, Max: 1, Window: day})) {
		t.Error("limits are the same if their zones have one name, and only then")
	}
}

// TestCalendarAcrossADayOf23Hours: what is refused on the short day is admitted when
// the next one begins and not before, also if the zone of the rule changes meanwhile.
func TestCalendarAcrossADayOf23Hours(t *testing.T) {
	berlin := MustNew(Spec{Algorithm: FixedWindow, Max: 10, Window: day, Calendar: true, Zone: zone(t, "Europe/Berlin")})
	noon := InstantOf(time.Date(2026, 3, 29, 10, 0, 0, 0, time.UTC))
	s, out := try(State{}, berlin, 10, noon)
	if !out.Admitted || out.Reset != 12*time.Hour {
		t.Fatalf("%+v", out)
	}
	if _, out = try(s, berlin, 1, noon); out.Admitted || out.Retry != 12*time.Hour {
		t.Fatalf("%+v", out)
	}
	if _, out = try(s, berlin, 1, noon.Add(12*time.Hour)-1); out.Admitted {
		t.Fatalf("%+v", out)
	}
	if _, out = try(s, berlin, 1, noon.Add(12*time.Hour)); !out.Admitted || out.Reset != day {
		t.Fatalf("%+v", out)
	}
	utc := MustNew(Spec{Algorithm: FixedWindow, Max: 10, Window: day, Calendar: true})
	if _, out = try(s, utc, 1, noon.Add(time.Hour)); !out.Admitted {
		// The state of a day that began at 23:00 belongs to the day before in UTC.
		t.Fatalf("%+v", out)
	}
}

// TestCalendarWhenTheClockStepsBack: an op that comes late counts in the window that
// has begun; a state of a later window than the next one moves to now.
func TestCalendarWhenTheClockStepsBack(t *testing.T) {
	l := MustNew(Spec{Algorithm: FixedWindow, Max: 10, Window: 30 * day, Calendar: true})
	march := InstantOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	s, _ := try(State{}, l, 10, march)
	if s, out := try(s, l, 1, march-1); out.Admitted || out.Remaining != 0 || out.Retry != 31*day+us || s.At != march {
		t.Fatalf("%+v, %+v", out, s)
	}
	if s, out := try(s, l, 1, march.Add(-28*day)); out.Admitted || s.At != march { // the beginning of February
		t.Fatalf("%+v, %+v", out, s)
	}
	january := march.Add(-28*day) - 1
	if s, out := try(s, l, 1, january); out.Admitted || out.Retry != us || s.At != march.Add(-59*day) {
		t.Fatalf("%+v, %+v", out, s)
	}
}
