package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A span is a part of a local day, [from, to) in milliseconds on the clock.
type span struct{ from, to int64 }

var wholeDay = span{0, dayMs}

// An opening is a run of weekdays, Monday is 0, and hours on each of them.
// last may be before first: the run goes over Sunday.
type opening struct {
	first, last int
	hours       span
}

// A closing is hours on a day, counted since 1970-01-01.
type closing struct {
	day   int64
	hours span
}

var weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

var (
	errOpening = errors.New(`want weekdays and hours such as "mon-fri 09:00-17:00"`)
	errClosing = errors.New(`want a date such as "2026-12-25" or with hours "2026-12-31 12:00-24:00"`)
	errHours   = errors.New(`want hours from 00:00 to 24:00 such as "09:00-17:00"`)
	errOrder   = errors.New(`must end after it begins; write one over midnight as two, until 24:00 and from 00:00 on ` +
		`the next day`)
)

func parseOpening(text string) (opening, error) {
	part := strings.Fields(strings.ToLower(text))
	if len(part) != 2 {
		return opening{}, errOpening
	}
	first, last, ranged := strings.Cut(part[0], "-")
	if !ranged {
		last = first
	}
	o := opening{first: slices.Index(weekdays, first), last: slices.Index(weekdays, last)}
	if o.first < 0 || o.last < 0 {
		return opening{}, errOpening
	}
	var err error
	o.hours, err = parseHours(part[1])
	return o, err
}

func parseClosing(text string) (closing, error) {
	part := strings.Fields(text)
	if len(part) != 1 && len(part) != 2 {
		return closing{}, errClosing
	}
	date, err := time.Parse(time.DateOnly, part[0])
	if err != nil {
		return closing{}, errClosing
	}
	c := closing{day: floorDiv(date.UnixMilli(), dayMs), hours: wholeDay}
	if len(part) == 2 {
		c.hours, err = parseHours(part[1])
	}
	return c, err
}

// parseHours reads "09:00-17:00".
func parseHours(text string) (span, error) {
	begin, end, _ := strings.Cut(text, "-")
	from, ok := parseClock(begin)
	to, ok2 := parseClock(end)
	switch {
	case !ok || !ok2:
		return span{}, errHours
	case from >= to:
		return span{}, errOrder
	}
	return span{from, to}, nil
}

// parseClock reads a time of day, 00:00 to 24:00.
func parseClock(text string) (ms int64, ok bool) {
	if text == "24:00" {
		return dayMs, true
	}
	t, err := time.Parse("15:04", text)
	return int64(t.Hour())*hourMs + int64(t.Minute())*minuteMs, err == nil && len(text) == len("00:00")
}

func (s span) String() string {
	return fmt.Sprintf("%02d:%02d-%02d:%02d",
		s.from/hourMs, s.from%hourMs/minuteMs, s.to/hourMs, s.to%hourMs/minuteMs)
}

func (o opening) String() string {
	days := weekdays[o.first]
	if o.last != o.first {
		days += "-" + weekdays[o.last]
	}
	return days + " " + o.hours.String()
}

func (c closing) String() string {
	date := time.UnixMilli(c.day * dayMs).UTC().Format(time.DateOnly)
	if c.hours == wholeDay {
		return date
	}
	return date + " " + c.hours.String()
}

func (s span) compare(t span) int {
	return cmp.Or(cmp.Compare(s.from, t.from), cmp.Compare(s.to, t.to))
}

func (o opening) compare(p opening) int {
	return cmp.Or(cmp.Compare(o.first, p.first), cmp.Compare(o.last, p.last), o.hours.compare(p.hours))
}

func (c closing) compare(d closing) int {
	return cmp.Or(cmp.Compare(c.day, d.day), c.hours.compare(d.hours))
}

// union adds one span to a list that is in order and without overlaps or
// touches, and keeps it so.
func union(list []span, add span) []span {
	all := append(slices.Clone(list), add)
	slices.SortFunc(all, span.compare)
	joined := all[:1]
	for _, s := range all[1:] {
		if last := &joined[len(joined)-1]; s.from <= last.to {
			last.to = max(last.to, s.to)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// without takes one span out of such a list.
func without(list []span, out span) []span {
	var left []span
	for _, s := range list {
		if before := (span{s.from, min(s.to, out.from)}); before.from < before.to {
			left = append(left, before)
		}
		if after := (span{max(s.from, out.to), s.to}); after.from < after.to {
			left = append(left, after)
		}
	}
	return left
}
