package plan

import (
	"math"
	"time"
)

const (
	// reachMs is how far Span looks.
	reachMs = 400 * dayMs
	// farMs bounds instants in milliseconds: more do not fit int64 in
	// microseconds.
	farMs = math.MaxInt64 / 1000
)

// Span returns the first stretch [fromMs, toMs) of open windows of sizeMs
// milliseconds that begins at or after startMs; all are milliseconds since the
// epoch. A window is open if it lies wholly in open time, and openings that
// touch, as until 24:00 and from 00:00 of the next day, are one.
//
// fromMs and toMs are multiples of sizeMs, and so should startMs be; one that
// is not counts as the next multiple. All windows from fromMs until toMs are
// open. The window at toMs is not, or lies more than 400 days after startMs:
// longer stretches are cut there and go on with a Span from toMs. ok is false,
// and the stretch empty, if no open window begins within 400 days, or if
// startMs in microseconds does not fit int64. sizeMs must be positive and at
// most [MaxSizeMs].
//
// A nil calendar has one stretch, from startMs to the last multiple of sizeMs
// that fits int64 in microseconds, about the year 294,000.
func (c *Calendar) Span(startMs, sizeMs int64) (fromMs, toMs int64, ok bool) {
	if startMs < -farMs || startMs > farMs {
		return 0, 0, false
	}
	start := gridAfter(startMs, sizeMs)
	if c == nil {
		far := gridBefore(farMs, sizeMs)
		return start, far, start < far
	}
	begin := start + reachMs // of a window: before it
	end := begin + sizeMs
	w := walker{calendar: c}
	for to := start; to < end; {
		var from int64
		from, to = w.stretch(to, end)
		fromMs, toMs = gridAfter(from, sizeMs), gridBefore(to, sizeMs)
		if fromMs < toMs && fromMs < begin {
			return fromMs, toMs, true
		}
	}
	return 0, 0, false
}

// gridBefore is the last multiple of sizeMs not after ms, gridAfter the first
// not before it.
func gridBefore(ms, sizeMs int64) int64 { return ms - floorMod(ms, sizeMs) }
func gridAfter(ms, sizeMs int64) int64  { return ms + floorMod(-ms, sizeMs) }

// on returns what is open on the day that many days after 1970-01-01, which
// was a Thursday.
func (c *Calendar) on(day int64) []span {
	if spans, ok := c.special[day]; ok {
		return spans
	}
	return c.week[floorMod(day+3, 7)]
}

// A walker follows a calendar through time. Between two changes of the clocks
// local time is UTC with a fixed offset, so that it is plain arithmetic.
type walker struct {
	calendar *Calendar
	offsetMs int64 // of local time from UTC
	untilMs  int64 // when offsetMs ends; 0 and 0 at first
	known    bool
}

// stretch returns the first stretch of open time at or after ms, cut at end.
// Both are end if it does not exist.
func (w *walker) stretch(ms, end int64) (from, to int64) {
	for from = ms; from < end; {
		open, until := w.at(from)
		if open {
			break
		}
		from = until
	}
	for to = from; to < end; {
		open, until := w.at(to)
		if !open {
			break
		}
		to = until
	}
	return min(from, end), min(to, end)
}

// at reports whether the instant ms is open, and until when that is so at least.
// Calls must go forward in time.
func (w *walker) at(ms int64) (open bool, untilMs int64) {
	if !w.known || ms >= w.untilMs {
		w.change(ms)
	}
	local := ms + w.offsetMs
	day := floorDiv(local, dayMs)
	clock := local - day*dayMs
	next := int64(dayMs)
	for _, s := range w.calendar.on(day) {
		if clock < s.to {
			open = clock >= s.from
			next = s.from
			if open {
				next = s.to
			}
			break
		}
	}
	return open, min(ms+next-clock, w.untilMs)
}

// change looks up the offset that holds at ms, and until when. On the last day
// of a leap year that is beyond its table of changes, ZoneBounds gives an end
// that is over; the next look is then a minute later.
func (w *walker) change(ms int64) {
	t := time.UnixMilli(ms).In(w.calendar.zone)
	_, offset := t.Zone()
	w.offsetMs, w.untilMs, w.known = int64(offset)*secondMs, math.MaxInt64, true
	if _, end := t.ZoneBounds(); !end.IsZero() {
		w.untilMs = end.UnixMilli()
	}
	if w.untilMs <= ms {
		w.untilMs = gridBefore(ms, minuteMs) + minuteMs
	}
}
