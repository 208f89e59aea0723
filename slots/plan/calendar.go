package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Bounds of a calendar's text.
const (
	maxCalendarBytes   = 2000
	maxCalendarEntries = 50
)

// A Calendar says in which windows events may be put: those that lie
// wholly in open time. It is immutable, so it may be shared by goroutines. A
// nil *Calendar is always open.
//
// Local time is open if the clock on the wall in the calendar's zone shows a
// time within an opening of its weekday, and within no closing of its date.
// When clocks are set forward, the times that are left out do not occur: an
// opening that lies in them is skipped on that day, and one that begins in
// them begins at the change. When clocks are set back, times that occur twice
// are open, or closed, both times.
type Calendar struct {
	text string // canonical, see String
	zone *time.Location
	week [7][]span // openings by weekday, Monday first

	// special has what is open on dates with a closing, by the number of days
	// since 1970-01-01.
	special map[int64][]span
}

// ParseCalendar reads a calendar such as
//
//	{"zone": "Europe/Berlin",
//	 "open": ["mon-fri 09:00-17:00", "sat 10:00-12:00"],
//	 "closed": ["2026-12-25", "2026-12-31 12:00-24:00"]}
//
// zone is an IANA name and required. open has weekdays (mon, tue, wed, thu,
// fri, sat, sun, or two with a hyphen; fri-mon is four days) with the hours
// from which and until which they are open, the end excluded; without open,
// all time is. closed has dates that are closed, wholly or for some hours, and
// goes before open. Hours are local, from 00:00 to 24:00 in whole minutes; an
// opening over midnight is written as two, and the two are one stretch.
//
// There may be 50 entries in open and closed together, and 2000 bytes of text.
// Errors name the field, the index in it and what is wanted.
func ParseCalendar(text []byte) (*Calendar, error) {
	c, err := parseCalendar(text)
	if err != nil {
		return nil, fmt.Errorf("calendar: %w", err)
	}
	return c, nil
}

func parseCalendar(text []byte) (*Calendar, error) {
	if len(text) > maxCalendarBytes {
		return nil, fmt.Errorf("has %d bytes, want at most %d", len(text), maxCalendarBytes)
	}
	fields, err := readFields(text)
	if err != nil {
		return nil, err
	}
	zone, err := readZone(fields["zone"])
	if err != nil {
		return nil, fmt.Errorf("zone: %w", err)
	}
	open, err := readList(fields, "open", parseOpening)
	if err != nil {
		return nil, err
	}
	closed, err := readList(fields, "closed", parseClosing)
	if err != nil {
		return nil, err
	}
	if open != nil && len(open) == 0 {
		return nil, errors.New("open: is empty: leave it out if all time is open, or pause by capacity 0")
	}
	if n := len(open) + len(closed); n > maxCalendarEntries {
		return nil, fmt.Errorf("open and closed have %d entries, want at most %d", n, maxCalendarEntries)
	}
	return newCalendar(zone, open, closed), nil
}

// readFields splits a JSON object into its fields; it must not have others
// than a calendar's, nor one twice.
func readFields(text []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("want a JSON object with zone, open and closed")
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		name := fmt.Sprint(t)
		if !slices.Contains([]string{"zone", "open", "closed"}, name) {
			return nil, fmt.Errorf("unknown field %q, want zone, open and closed", name)
		}
		if fields[name] != nil {
			return nil, fmt.Errorf("%s: is given twice", name)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, notJSON(err))
		}
		fields[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, notJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is text after the JSON object")
	}
	return fields, nil
}

func notJSON(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("is not valid JSON: %w", err)
}

// readString returns the string that value is, and false for anything else.
func readString(value json.RawMessage) (string, bool) {
	var s *string
	err := json.Unmarshal(value, &s)
	if err != nil || s == nil {
		return "", false
	}
	return *s, true
}

func readZone(value json.RawMessage) (*time.Location, error) {
	name, ok := readString(value)
	if !ok || name == "" || name == "Local" { // Local differs between machines
		return nil, errors.New("is required: an IANA name such as Europe/Berlin or UTC")
	}
	zone, err := time.LoadLocation(name)
	if err != nil { // its text may have paths of this machine
		return nil, fmt.Errorf("%q is not known here, want an IANA name such as Europe/Berlin or UTC", name)
	}
	return zone, nil
}

// readList parses each entry of the list in fields[name]; nil means that there
// is no list.
func readList[E any](fields map[string]json.RawMessage, name string, parse func(string) (E, error)) ([]E, error) {
	if fields[name] == nil {
		return nil, nil
	}
	var values []json.RawMessage
	if err := json.Unmarshal(fields[name], &values); err != nil {
		return nil, fmt.Errorf("%s: want a list of strings", name)
	}
	if values == nil { // null
		return nil, nil
	}
	entries := make([]E, len(values))
	for i, value := range values {
		text, ok := readString(value)
		if !ok {
			return nil, fmt.Errorf("%s[%d]: want a string", name, i)
		}
		entry, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %q: %w", name, i, text, err)
		}
		entries[i] = entry
	}
	return entries, nil
}

// newCalendar puts the entries in order and works out what is open when.
func newCalendar(zone *time.Location, open []opening, closed []closing) *Calendar {
	slices.SortFunc(open, opening.compare)
	slices.SortFunc(closed, closing.compare)
	open, closed = slices.Compact(open), slices.Compact(closed)
	c := &Calendar{zone: zone, text: canonical(zone, open, closed), special: map[int64][]span{}}
	if len(open) == 0 {
		open = []opening{{first: 0, last: 6, hours: wholeDay}}
	}
	for _, o := range open {
		for day := o.first; ; day = (day + 1) % 7 {
			c.week[day] = union(c.week[day], o.hours)
			if day == o.last {
				break
			}
		}
	}
	for _, o := range closed {
		c.special[o.day] = without(c.on(o.day), o.hours)
	}
	return c
}

// canonical returns the text that String documents.
func canonical(zone *time.Location, open []opening, closed []closing) string {
	doc := struct {
		Zone   string   `json:"zone"`
		Open   []string `json:"open,omitempty"`
		Closed []string `json:"closed,omitempty"`
	}{Zone: zone.String()}
	for _, o := range open {
		doc.Open = append(doc.Open, o.String())
	}
	for _, o := range closed {
		doc.Closed = append(doc.Closed, o.String())
	}
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings only: cannot be
	}
	return string(text)
}

// String returns the calendar as canonical JSON, which [ParseCalendar] reads
// back: fields in the order zone, open, closed without spaces, lists that are
// empty left out, entries in lower case, sorted by weekday or date and then by
// hours, and no entry twice. Entries that overlap are not joined. It is never
// longer than the text that was parsed. For a nil calendar it is "".
func (c *Calendar) String() string {
	if c == nil {
		return ""
	}
	return c.text
}
