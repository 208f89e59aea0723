package backendtest

import (
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A turn is when a window of a calendar ends.
type turn struct {
	window time.Duration
	zone   int // of zones
	at     string
}

// turns are those of months of all lengths, years, weeks, and of days on which clocks
// change. They are far ahead of any server's clock, which ends states.
var turns = []turn{
	{30 * 24 * time.Hour, 0, "2064-03-01T00:00:00Z"}, // after 29 days
	{30 * 24 * time.Hour, 0, "2063-03-01T00:00:00Z"}, // after 28
	{30 * 24 * time.Hour, 0, "2064-05-01T00:00:00Z"},
	{30 * 24 * time.Hour, 1, "2064-03-31T22:00:00Z"}, // after 31 days less an hour
	{365 * 24 * time.Hour, 0, "2065-01-01T00:00:00Z"},
	{365 * 24 * time.Hour, 1, "2064-12-31T23:00:00Z"},
	{365 * 24 * time.Hour, 3, "2064-12-31T13:00:00Z"},
	{7 * 24 * time.Hour, 0, "2064-11-24T00:00:00Z"},
	{24 * time.Hour, 1, "2064-03-30T22:00:00Z"}, // after 23 hours
	{24 * time.Hour, 1, "2064-10-26T23:00:00Z"}, // after 25
	{24 * time.Hour, 3, "2064-10-05T13:00:00Z"}, // after 23.5
}

// checkCalendar: a window of a calendar ends when it ends there, and not a step of time
// earlier; so say the waits of refusals.
func checkCalendar(e *env) {
	if e.s.Caps.PlainWindows {
		e.Skip("the store has no windows of the calendar")
	}
	e.open()
	for _, c := range turns {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			e.Fatal(err)
		}
		for _, o := range e.overflows(limit.FixedWindow) {
			if o != limit.Debt {
				e.turn(c, limit.InstantOf(at), o)
			}
		}
	}
	if e.s.Caps.ServerClock {
		e.calendarNow()
	}
}

func (e *env) turn(c turn, end limit.Instant, o limit.Overflow) {
	l, err := limit.New(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: c.window, Calendar: true,
		Zone: zones[c.zone], Overflow: o})
	if err != nil {
		e.Fatal(err)
	}
	k, m := e.key(c.at, o.String(), limit.FixedWindow), newModel()
	take := func(at limit.Instant, cost int64) limit.Outcome {
		e.Helper()
		req := request(at, k, l, cost)
		want, got := m.take(&req, at), e.take(req)
		if d := differ(&got, &want); d != "" {
			e.Fatalf("%v, cost %d at %v: %s", l, cost, at.Time(), d)
		}
		return got.Outcomes[0]
	}
	now := end.Add(-20 * time.Hour)
	take(now, 7)
	if out := take(now, 5); out.Admitted || now.Add(out.Retry) != end || now.Add(out.Reset) != end {
		e.Fatalf("%v: refused at %v, %+v, want to wait until %s", l, now.Time(), out, c.at)
	}
	take(end-limit.Instant(e.step), 0)
	if out := take(end, 8); !out.Admitted || out.Remaining != 2 {
		e.Fatalf("%v: in the next window: %+v", l, out)
	}
	take(end-limit.Instant(e.step), 5) // comes late
	take(now.Add(-c.window), 1)        // by a clock that was set back
	take(now.Add(-2*c.window), 1)
	take(end.Add(c.window*3/2), -3)
	take(end.Add(2*c.window), 10)
}

// calendarNow: without an instant the store's own clock says which window it is.
func (e *env) calendarNow() {
	for i, window := range calendars {
		l, err := limit.New(limit.Spec{Algorithm: limit.FixedWindow, Max: 2, Window: window, Calendar: true, Zone: zones[i]})
		if err != nil {
			e.Fatal(err)
		}
		k := e.key("calendar", window.String(), limit.FixedWindow)
		for n := range 3 {
			v := e.take(request(0, k, l, 1))
			if end := l.WindowEnd(v.At); v.At.Add(v.Outcomes[0].Reset) != end || v.Admitted != (n < 2) {
				e.Fatalf("%v: %+v, want a reset at %v", l, v, end.Time())
			}
		}
	}
}
