package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// sane checks what is true of the answer of Span to any calendar.
func sane(t *testing.T, c *Calendar, start, size, from, to int64, ok bool) {
	t.Helper()
	if !ok {
		if from != 0 || to != 0 {
			t.Fatalf("%s from %d by %d: [%d, %d) without ok", c, start, size, from, to)
		}
		return
	}
	if from < start || from >= to || from%size != 0 || to%size != 0 || from >= start+reachMs || to > start+reachMs+size {
		t.Fatalf("%s from %d by %d: [%d, %d)", c, start, size, from, to)
	}
	if again, end, ok := c.Span(from, size); !ok || again != from || end < to {
		t.Fatalf("%s from %d by %d: [%d, %d), but from there [%d, %d) %v", c, start, size, from, to, again, end, ok)
	}
}

func at(t testing.TB, text string) int64 {
	t.Helper()
	instant, err := time.Parse("2006-01-02 15:04:05.999Z07:00", text)
	if err != nil {
		t.Fatal(err)
	}
	return instant.UnixMilli()
}

func utc(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05.999Z07:00") }

func TestSpanIsTheNextOpenTime(t *testing.T) {
	const (
		ny     = `{"zone":"America/New_York","open":["mon-sun 01:00-03:30"]}`
		within = `{"zone":"Europe/Berlin","open":["sun 02:15-02:45"]}`
		night  = `{"zone":"Europe/Berlin","open":["sun 01:00-02:30"]}`
		both   = `{"zone":"Europe/Berlin","closed":["2026-10-25 02:00-03:00"]}`
		nights = `{"zone":"UTC","open":["fri 22:00-24:00","sat 00:00-06:00","sat 06:00-07:00"]}`
		howe   = `{"zone":"Australia/Lord_Howe","open":["sun 01:00-02:00"]}`
	)
	for _, c := range []struct {
		name, calendar, start, size, from, to string
	}{
		{"open now, winter", berlin, "2026-11-23 09:00:00Z", "PT4S", "2026-11-23 09:00:00Z", "2026-11-23 16:00:00Z"},
		{"open now, summer", berlin, "2026-07-06 08:59:56Z", "PT4S", "2026-07-06 08:59:56Z", "2026-07-06 15:00:00Z"},
		{"before opening", berlin, "2026-11-23 01:00:00Z", "PT4S", "2026-11-23 08:00:00Z", "2026-11-23 16:00:00Z"},
		{"at the end", berlin, "2026-11-23 16:00:00Z", "PT4S", "2026-11-24 08:00:00Z", "2026-11-24 16:00:00Z"},
		{"last window", berlin, "2026-11-23 15:59:56Z", "PT4S", "2026-11-23 15:59:56Z", "2026-11-23 16:00:00Z"},
		{"over the weekend", berlin, "2026-11-28 11:00:00Z", "PT4S", "2026-11-30 08:00:00Z", "2026-11-30 16:00:00Z"},
		{"a closed date", berlin, "2026-12-24 16:00:00Z", "PT4S", "2026-12-26 09:00:00Z", "2026-12-26 11:00:00Z"},
		{"closed from noon", berlin, "2026-12-31 00:00:00Z", "PT4S", "2026-12-31 08:00:00Z", "2026-12-31 11:00:00Z"},
		{"not on the grid", berlin, "2026-11-23 15:59:55.5Z", "PT4S", "2026-11-23 15:59:56Z", "2026-11-23 16:00:00Z"},
		{"windows of 7 s", berlin, "2026-11-22 00:00:04Z", "PT7S", "2026-11-23 08:00:02Z", "2026-11-23 16:00:00Z"},
		{"too long on Saturday", berlin, "2026-11-28 00:00:00Z", "PT3H", "2026-11-30 09:00:00Z", "2026-11-30 15:00:00Z"},
		{"until and from midnight", nights, "2026-11-23 00:00:00Z", "PT3H", "2026-11-28 00:00:00Z", "2026-11-28 06:00:00Z"},
		{"over midnight", nights, "2026-11-23 00:00:00Z", "PT1H", "2026-11-27 22:00:00Z", "2026-11-28 07:00:00Z"},
		{"blackout only", `{"zone":"UTC","closed":["2026-12-25"]}`, "2026-12-25 03:00:00Z", "PT1H", "2026-12-26 00:00:00Z",
			"2028-01-29 04:00:00Z"},
		{"until a blackout", `{"zone":"UTC","closed":["2026-12-25"]}`, "2026-12-21 03:00:00Z", "PT1H", "2026-12-21 03:00:00Z",
			"2026-12-25 00:00:00Z"},
		{"two blackouts in a day", `{"zone":"UTC","closed":["2026-12-25 08:00-12:00","2026-12-25 11:00-14:00"]}`,
			"2026-12-25 08:00:00Z", "PT1H", "2026-12-25 14:00:00Z", "2028-01-29 09:00:00Z"},
		{"before 1970", `{"zone":"UTC","open":["thu 00:00-00:10"]}`, "1969-12-20 00:00:00Z", "PT10M", "1969-12-25 00:00:00Z",
			"1969-12-25 00:10:00Z"},
		{"over 1970", `{"zone":"UTC","open":["wed-thu 00:00-24:00"]}`, "1969-12-31 12:00:00Z", "PT12H",
			"1969-12-31 12:00:00Z", "1970-01-02 00:00:00Z"},

		// Berlin 2026-03-29: 02:00 CET is 03:00 CEST.
		{"forward, opening left out", within, "2026-03-29 00:00:00Z", "PT4S", "2026-04-05 00:15:00Z", "2026-04-05 00:45:00Z"},
		{"forward, end left out", night, "2026-03-29 00:00:00Z", "PT4S", "2026-03-29 00:00:00Z", "2026-03-29 01:00:00Z"},
		{"forward, begin left out", `{"zone":"Europe/Berlin","open":["sun 02:30-04:00"]}`, "2026-03-29 00:00:00Z", "PT4S",
			"2026-03-29 01:00:00Z", "2026-03-29 02:00:00Z"},
		{"forward, across", `{"zone":"Europe/Berlin","open":["sun 01:00-04:00"]}`, "2026-03-29 00:00:00Z", "PT4S",
			"2026-03-29 00:00:00Z", "2026-03-29 02:00:00Z"},
		// Berlin 2026-10-25: 03:00 CEST is 02:00 CET.
		{"back, first time", within, "2026-10-25 00:00:00Z", "PT4S", "2026-10-25 00:15:00Z", "2026-10-25 00:45:00Z"},
		{"back, second time", within, "2026-10-25 00:45:00Z", "PT4S", "2026-10-25 01:15:00Z", "2026-10-25 01:45:00Z"},
		{"back, end repeated", night, "2026-10-24 23:00:00Z", "PT4S", "2026-10-24 23:00:00Z", "2026-10-25 00:30:00Z"},
		{"back, end repeated, rest", night, "2026-10-25 00:30:00Z", "PT4S", "2026-10-25 01:00:00Z", "2026-10-25 01:30:00Z"},
		{"back, across", `{"zone":"Europe/Berlin","open":["sun 01:00-04:00"]}`, "2026-10-24 00:00:00Z", "PT4S",
			"2026-10-24 23:00:00Z", "2026-10-25 03:00:00Z"},
		{"back, until the change", `{"zone":"Europe/Berlin","open":["sun 02:00-03:00"]}`, "2026-10-24 00:00:00Z", "PT2H",
			"2026-10-25 00:00:00Z", "2026-10-25 02:00:00Z"},
		{"back, closed both times", both, "2026-10-25 00:00:00Z", "PT1H", "2026-10-25 02:00:00Z", "2027-11-29 01:00:00Z"},
		// New York 2026-03-08 and 2026-11-01.
		{"New York, forward", ny, "2026-03-08 00:00:00Z", "PT30M", "2026-03-08 06:00:00Z", "2026-03-08 07:30:00Z"},
		{"New York, back", ny, "2026-11-01 00:00:00Z", "PT30M", "2026-11-01 05:00:00Z", "2026-11-01 08:30:00Z"},
		// Lord Howe 2026-04-05: 02:00 +11:00 is 01:30 +10:30.
		{"half an hour back", howe, "2026-04-04 00:00:00Z", "PT30M", "2026-04-04 14:00:00Z", "2026-04-04 15:30:00Z"},
		// Apia had no 2011-12-30, a Friday.
		{"a day left out", `{"zone":"Pacific/Apia","open":["fri 00:00-24:00"]}`, "2011-12-25 00:00:00Z", "PT1H",
			"2012-01-05 10:00:00Z", "2012-01-06 10:00:00Z"},
		{"over a day left out", `{"zone":"Pacific/Apia","open":["thu-sat 00:00-24:00"]}`, "2011-12-26 00:00:00Z", "PT1H",
			"2011-12-29 10:00:00Z", "2011-12-31 10:00:00Z"},
		{"quarter of an hour", `{"zone":"Asia/Kathmandu","open":["mon 00:00-01:00"]}`, "2026-11-22 00:00:00Z", "PT15M",
			"2026-11-22 18:15:00Z", "2026-11-22 19:15:00Z"},
		{"by rule, 2050", berlin, "2050-07-04 00:00:00Z", "PT4S", "2050-07-04 07:00:00Z", "2050-07-04 15:00:00Z"},
		{"last day of a leap year", berlin, "2040-12-31 00:00:00Z", "PT4S", "2040-12-31 08:00:00Z", "2040-12-31 16:00:00Z"},
		{"over the end of a leap year", `{"zone":"America/New_York","open":["mon-tue 00:00-24:00"]}`, "2040-12-30 00:00:00Z",
			"PT1H", "2040-12-31 05:00:00Z", "2041-01-02 05:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			size, err := ParseSize(c.size)
			if err != nil {
				t.Fatal(err)
			}
			from, to, ok := mustCalendar(t, c.calendar).Span(at(t, c.start), size)
			if !ok || utc(from) != c.from || utc(to) != c.to {
				t.Errorf("[%s, %s) %v, want [%s, %s)", utc(from), utc(to), ok, c.from, c.to)
			}
		})
	}
}

// TestSpanReach: windows that never fit, and one that fits once in years.
func TestSpanReach(t *testing.T) {
	start := at(t, "2026-11-23 00:00:00Z")
	for text, size := range map[string]int64{
		berlin: MaxSizeMs,
		`{"zone":"UTC","open":["mon-sun 00:30-01:30"]}`:                         hourMs,
		`{"zone":"UTC","open":["mon 00:00-00:01"],"closed":["2026-11-23"]}`:     2 * minuteMs,
		`{"zone":"UTC","open":["mon 08:00-12:00"],"closed":["2020-01-01"]}`:     4*hourMs + minuteMs,
		`{"zone":"Europe/Berlin","open":["sun 02:00-03:00","mon 04:00-05:00"]}`: 2*hourMs + 1,
	} {
		if from, to, ok := mustCalendar(t, text).Span(start, size); ok || from != 0 || to != 0 {
			t.Errorf("%s by %s: [%s, %s) %v", text, FormatSize(size), utc(from), utc(to), ok)
		}
	}
	// Windows of 23:59 h begin a minute earlier each day.
	const size = dayMs - minuteMs
	daily := mustCalendar(t, `{"zone":"UTC","open":["mon-sun 00:00-23:59"]}`)
	last := int64(1440) * size // begins at a midnight
	if from, to, ok := daily.Span(last-400*size, size); !ok || from != last || to != last+size {
		t.Errorf("400 windows before: [%s, %s) %v", utc(from), utc(to), ok)
	}
	if from, to, ok := daily.Span(last-401*size, size); ok {
		t.Errorf("401 windows before: [%s, %s)", utc(from), utc(to))
	}
}

// TestSpanAlwaysOpen: one stretch as far as Span looks, and on from its end.
func TestSpanAlwaysOpen(t *testing.T) {
	for _, text := range []string{
		`{"zone":"Europe/Berlin"}`, `{"zone":"Europe/Berlin","open":["mon-sun 00:00-24:00"]}`,
		`{"zone":"America/New_York","open":["wed-tue 00:00-12:00","mon-sun 12:00-24:00"],"closed":["2020-02-02"]}`,
	} {
		c := mustCalendar(t, text)
		start := gridBefore(at(t, "2026-11-23 11:11:11Z"), 7000)
		for range 5 {
			from, to, ok := c.Span(start, 7000)
			if !ok || from != start || to != gridBefore(start+reachMs+7000, 7000) {
				t.Fatalf("%s from %d: [%d, %d) %v", text, start, from, to, ok)
			}
			start = to
		}
	}
}

func TestSpanNil(t *testing.T) {
	var c *Calendar
	for _, start := range []int64{-8000, 0, 4000, 1_795_262_400_000} {
		from, to, ok := c.Span(start, 4000)
		if !ok || from != start || to%4000 != 0 || to > math.MaxInt64/1000 || to <= math.MaxInt64/1000-4000 {
			t.Errorf("from %d: [%d, %d) %v", start, from, to, ok)
		}
	}
	if from, _, ok := c.Span(4001, 4000); !ok || from != 8000 {
		t.Errorf("not on the grid: %d %v", from, ok)
	}
}

// TestSpanFarAway: instants at the edge of int64 neither overflow nor hang.
func TestSpanFarAway(t *testing.T) {
	for _, c := range []*Calendar{nil, mustCalendar(t, berlin),
		mustCalendar(t, `{"zone":"UTC","open":["mon 00:00-01:00"]}`)} {
		for _, start := range []int64{math.MinInt64, math.MinInt64 + 1, -farMs - 1, farMs + 1, math.MaxInt64} {
			if from, to, ok := c.Span(start, 4000); ok || from != 0 || to != 0 {
				t.Errorf("%s from %d: [%d, %d) %v", c, start, from, to, ok)
			}
		}
		for _, start := range []int64{gridAfter(-farMs, 4000), gridBefore(farMs, 4000) - 4000} {
			from, to, ok := c.Span(start, 4000)
			if !ok || from < start || to <= from || from%4000 != 0 || to%4000 != 0 {
				t.Errorf("%s from %d: [%d, %d) %v", c, start, from, to, ok)
			}
		}
	}
}

// TestOffsetHolds: until it looks again, a walker's offset is that of the zone,
// also where the zone uses a rule.
func TestOffsetHolds(t *testing.T) {
	r := seeded(t)
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca",
		"Europe/Dublin", "Asia/Tokyo"} {
		c := mustCalendar(t, fmt.Sprintf(`{"zone":%q}`, name))
		for range 20_000 {
			ms := r.Int64N(2*130*365*dayMs) - 130*365*dayMs
			if r.IntN(4) == 0 { // last and first days of years
				ms = time.Date(1900+r.IntN(300), 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli() + r.Int64N(3*dayMs) - dayMs
			}
			w := walker{calendar: c}
			w.change(ms)
			if w.untilMs <= ms {
				t.Fatalf("%s at %s: no progress", name, utc(ms))
			}
			end := min(w.untilMs, ms+400*dayMs)
			in := ms + r.Int64N(end-ms)
			for _, other := range []int64{in, end - 1} {
				if _, offset := time.UnixMilli(other).In(c.zone).Zone(); int64(offset)*secondMs != w.offsetMs {
					t.Fatalf("%s: offset %d at %s, but %d s at %s", name, w.offsetMs, utc(ms), offset, utc(other))
				}
			}
		}
	}
}

// A wall is a calendar that looks at the clock on the wall, minute by minute.
type wall struct {
	zone         *time.Location
	open, closed [][]string // day or date, from, to
}

func (w *wall) text() string {
	list := func(entries [][]string) string {
		var quoted []string
		for _, e := range entries {
			quoted = append(quoted, fmt.Sprintf("%q", e[0]+" "+e[1]+"-"+e[2]))
		}
		return strings.Join(quoted, ",")
	}
	text := fmt.Sprintf(`{"zone":%q,"closed":[%s]`, w.zone, list(w.closed))
	if len(w.open) > 0 {
		text += fmt.Sprintf(`,"open":[%s]`, list(w.open))
	}
	return text + "}"
}

// isOpen reports whether the minute that holds ms is open.
func (w *wall) isOpen(ms int64) bool {
	now := time.UnixMilli(ms).In(w.zone)
	clock := now.Format("15:04")
	says := func(entries [][]string, day string) bool {
		return slices.ContainsFunc(entries, func(e []string) bool { return e[0] == day && e[1] <= clock && clock < e[2] })
	}
	day := strings.ToLower(now.Format("Mon"))
	return (len(w.open) == 0 || says(w.open, day)) && !says(w.closed, now.Format(time.DateOnly))
}

// span is Span, looking no further than days.
func (w *wall) span(start, size int64, days int64) (from, to int64, ok bool) {
	from = start
	for to = start; to < start+days*dayMs; to += size {
		switch {
		case w.windowOpen(to, size):
			ok = true
		case ok:
			return from, to, true
		default:
			from = to + size
		}
	}
	return from, to, ok
}

func (w *wall) windowOpen(start, size int64) bool {
	for ms := start; ms < start+size; ms = gridBefore(ms, minuteMs) + minuteMs {
		if !w.isOpen(ms) {
			return false
		}
	}
	return true
}

// randomWall has openings and closings around the day of an instant.
func randomWall(r *rand.Rand, zone *time.Location, around time.Time) *wall {
	w := &wall{zone: zone}
	hours := func() (opening, closing string) {
		from := []int64{0, 0, 1, 60, 90, 120, 150, 180, 240, 600, 1380}[r.IntN(11)]
		to := min(from+[]int64{1, 30, 45, 60, 90, 120, 240, 1440}[r.IntN(8)], 1440)
		text := span{from * minuteMs, to * minuteMs}.String()
		return text[:5], text[6:]
	}
	for range r.IntN(12) {
		from, to := hours()
		w.open = append(w.open, []string{weekdays[r.IntN(7)], from, to})
	}
	for range r.IntN(5) {
		from, to := hours()
		w.closed = append(w.closed, []string{around.AddDate(0, 0, r.IntN(7)-3).Format(time.DateOnly), from, to})
	}
	return w
}

// TestSpanAgainstWall compares with looking at every minute, around changes of
// the clocks and elsewhere.
func TestSpanAgainstWall(t *testing.T) {
	changes := map[string][]string{
		"UTC": {"2026-11-23 12:00:00Z", "1969-12-31 23:00:00Z"},
		"Europe/Berlin": {"2026-03-29 01:00:00Z", "2026-10-25 01:00:00Z", "2051-10-29 01:00:00Z",
			"2040-12-31 12:00:00Z"},
		"America/New_York":    {"2026-03-08 07:00:00Z", "2026-11-01 06:00:00Z", "2044-12-31 12:00:00Z"},
		"Australia/Lord_Howe": {"2026-04-04 15:00:00Z", "2026-10-03 15:30:00Z", "2040-12-31 12:00:00Z"},
		"Pacific/Apia":        {"2011-12-30 10:00:00Z"},
		"America/Sao_Paulo":   {"2018-11-04 03:00:00Z"}, // no midnight
		"Asia/Kathmandu":      {"2026-11-23 12:00:00Z"},
	}
	sizes := []int64{5 * minuteMs, 7 * minuteMs, 30 * minuteMs, 45 * minuteMs, hourMs, 2 * hourMs, 90*secondMs + 500}
	const days = 9
	r, found := seeded(t), 0
	for name, instants := range changes {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			around := time.UnixMilli(at(t, instants[r.IntN(len(instants))]))
			w, size := randomWall(r, zone, around.In(zone)), sizes[r.IntN(len(sizes))]
			c := mustCalendar(t, w.text())
			start := gridBefore(around.UnixMilli()-r.Int64N(3*dayMs), size)
			from, to, ok := c.Span(start, size)
			sane(t, c, start, size, from, to, ok)
			wantFrom, wantTo, wantOK := w.span(start, size, days)
			if !wantOK {
				if ok && from < start+days*dayMs-size {
					t.Fatalf("%s from %s by %s: [%s, %s), want none so soon", c, utc(start), FormatSize(size), utc(from), utc(to))
				}
				continue
			}
			found++
			if wantTo >= start+days*dayMs { // cut there
				to = min(to, wantTo)
			}
			if !ok || from != wantFrom || to != wantTo {
				t.Fatalf("%s from %s by %s: [%s, %s) %v, want [%s, %s)", c, utc(start), FormatSize(size), utc(from), utc(to), ok,
					utc(wantFrom), utc(wantTo))
			}
		}
	}
	if found < 200 {
		t.Fatalf("only %d cases had a stretch", found)
	}
}
