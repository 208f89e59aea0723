package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A Mapping makes requests of the lines of an access log in JSON. Fields of objects in objects are written with dots.
type Mapping struct {
	Domain      string
	Descriptors []string // as tenant={tenant},path={path|no-query}
	Time        string   // the field with the time of the beginning
	Duration    string   // the field with the duration in milliseconds; "": not known
	Cost        string   // the field with the cost; "": one
}

// Used reports whether there is anything to map.
func (m *Mapping) Used() bool {
	return m.Domain != "" || len(m.Descriptors) > 0 || m.Time != "" || m.Duration != "" || m.Cost != ""
}

// An accessLog reads access logs of Envoy.
type accessLog struct {
	Mapping
	clock  clock
	fields []string // that are mapped
	asking int      // fields[:asking] are what requests are made of
	seen   []bool   // in any line
	names  []string // of the fields of the first line
	values [][]byte // of the line; nil: it has none

	order []place // of the fields of the line before
	nth   int     // of the field that is read next

	patterns             []pattern
	time, duration, cost int // in fields; -1: none

	requests map[string]*asked
	size     int
	key      []byte
}

// A place maps the name of a field to the index of its value; -1: the field is not used.
type place struct {
	name []byte
	at   int
}

// maxOrder bounds the fields whose places are kept, and maxName their names, in bytes.
const maxOrder, maxName = 1000, 100

// A pattern is a descriptor to be: an entry has parts.
type pattern [][]part

// A part is text, or the value of a field.
type part struct {
	text   string
	field  int // -1: it is text
	filter func([]byte) []byte
}

var filters = map[string]func([]byte) []byte{
	"no-query": func(b []byte) []byte { b, _, _ = bytes.Cut(b, []byte("?")); return b },
	"lower":    bytes.ToLower,
}

func newAccessLog(m Mapping) (*accessLog, error) {
	switch {
	case m.Domain == "":
		return nil, errors.New("--domain is missing: the domain of the requests in an access log")
	case len(m.Descriptors) == 0:
		return nil, errors.New("--descriptor is missing: what descriptors to make, as in " +
			"'tenant={tenant},path={path|no-query}'")
	case m.Time == "":
		return nil, errors.New("--time is missing: the field with the time at which a request began")
	}
	a := &accessLog{Mapping: m, time: -1, duration: -1, cost: -1}
	for _, text := range m.Descriptors {
		t, err := a.pattern(text)
		if err != nil {
			return nil, fmt.Errorf("--descriptor %q: %w", text, err)
		}
		a.patterns = append(a.patterns, t)
	}
	if m.Cost != "" {
		a.cost = a.field(m.Cost)
	}
	a.asking = len(a.fields)
	a.time = a.field(m.Time)
	if m.Duration != "" {
		a.duration = a.field(m.Duration)
	}
	a.seen, a.values = make([]bool, len(a.fields)), make([][]byte, len(a.fields))
	return a, nil
}

// field returns the place of a field among those that are mapped.
func (a *accessLog) field(name string) int {
	if i := slices.Index(a.fields, name); i >= 0 {
		return i
	}
	a.fields = append(a.fields, name)
	return len(a.fields) - 1
}

// pattern reads a descriptor such as tenant={tenant},path={path|no-query}. A comma in a value is written "\,".
func (a *accessLog) pattern(text string) (t pattern, err error) {
	const comma = "\x00"
	for entry := range strings.SplitSeq(strings.ReplaceAll(text, `\,`, comma), ",") {
		key, value, ok := strings.Cut(strings.ReplaceAll(entry, comma, ","), "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not KEY=VALUE", entry)
		}
		parts := []part{{text: key, field: -1}}
		for value != "" {
			before, rest, found := strings.Cut(value, "{")
			parts = append(parts, part{text: before, field: -1})
			if !found {
				break
			}
			name, after, closed := strings.Cut(rest, "}")
			if !closed {
				return nil, fmt.Errorf("%q has a { without a }", entry)
			}
			name, filter, filtered := strings.Cut(name, "|")
			p := part{field: a.field(name), filter: filters[filter]}
			if filtered && p.filter == nil {
				return nil, fmt.Errorf("unknown filter %q; there are lower and no-query", filter)
			}
			parts, value = append(parts, p), after
		}
		t = append(t, parts)
	}
	return t, nil
}

func (a *accessLog) parse(text []byte, l *line) (err error) {
	*l = line{}
	s := scanner{text: text}
	clear(a.values)
	a.nth = 0
	var first *[]string
	if a.names == nil {
		first, a.names = &a.names, []string{}
	}
	if err = a.read(&s, nil, 0, first); err == nil {
		err = s.end()
	}
	if err != nil {
		return err
	}
	if a.values[a.time] == nil {
		return fmt.Errorf("the line has no field %q", a.Time)
	}
	if l.at, err = a.clock.read(a.values[a.time]); err != nil {
		return fmt.Errorf("%s: %w", a.Time, err)
	}
	if a.duration >= 0 && a.values[a.duration] != nil {
		ms, err := strconv.ParseFloat(string(a.values[a.duration]), 64)
		if err != nil || !(ms >= 0 && ms < 1e12) {
			return fmt.Errorf("%s: %.40q is not a number of milliseconds", a.Duration, a.values[a.duration])
		}
		l.until = l.at + limit.Instant(ms*1000+0.5)
	}
	l.asked, err = a.request()
	return err
}

// read reads the fields of an object, and notes the values of those that are mapped.
func (a *accessLog) read(s *scanner, path []byte, depth int, names *[]string) error {
	if depth > maxDepth {
		return s.errorf("more than %d objects in each other", maxDepth)
	}
	return s.object(func(name []byte) error {
		if len(path) > 0 {
			name = append(append(path[:len(path):len(path)], '.'), name...)
		}
		switch s.next() {
		case '{':
			return a.read(s, name, depth+1, names)
		case '[':
			return s.skip(depth)
		}
		value, err := s.scalar()
		if names != nil {
			*names = append(*names, string(name))
		}
		if at := a.index(name); at >= 0 {
			if len(value) == 0 || string(value) == "-" { // Envoy's null, or - in texts, where it has no value
				value = nil
			}
			a.seen[at], a.values[at] = true, value
		}
		return err
	})
}

// index returns the index of a field among those that are used, or -1. Most lines have the fields of the line before,
// in the same order, so it first compares with that line.
func (a *accessLog) index(name []byte) int {
	n := a.nth
	a.nth++
	if n < len(a.order) && bytes.Equal(a.order[n].name, name) {
		return a.order[n].at
	}
	at := slices.IndexFunc(a.fields, func(f string) bool { return f == string(name) })
	if len(name) > maxName || n > len(a.order) || n == maxOrder {
		return at
	}
	if n == len(a.order) {
		a.order = append(a.order, place{})
	}
	a.order[n] = place{append(a.order[n].name[:0], name...), at}
	return at
}

// request makes the request of a line: nil if every descriptor lacks a value. Envoy, too, leaves out a descriptor whose
// value is missing.
func (a *accessLog) request() (*asked, error) {
	a.key = a.key[:0]
	for i := range a.fields[:a.asking] {
		size := uint64(0)
		if a.values[i] != nil {
			size = 1 + uint64(len(a.values[i]))
		}
		a.key = append(binary.AppendUvarint(a.key, size), a.values[i]...)
	}
	if r, ok := a.requests[string(a.key)]; ok {
		return r, nil
	}
	q := newQuestion()
	r := q.request
	r.Domain = a.Domain
	var cost uint64
	if a.cost >= 0 {
		if a.values[a.cost] == nil {
			return nil, fmt.Errorf("the line has no field %q", a.Cost)
		}
		var err error
		if cost, err = strconv.ParseUint(string(a.values[a.cost]), 10, 63); err != nil {
			return nil, fmt.Errorf("%s: %.40q is not a cost: an integer from 0", a.Cost, a.values[a.cost])
		}
	}
	for _, t := range a.patterns {
		if d, ok := a.descriptor(t); ok {
			d.HasHits, d.Hits = a.cost >= 0, cost
			r.Descriptors = append(r.Descriptors, d)
		}
	}
	if len(r.Descriptors) == 0 {
		q.request = nil
	}
	if a.size += memoryOf(a.key); a.size > kept || a.requests == nil {
		a.requests, a.size = map[string]*asked{}, 0
	}
	a.requests[string(a.key)] = &q.asked
	return &q.asked, nil
}

func (a *accessLog) descriptor(t pattern) (d ratelimit.Descriptor, ok bool) {
	for _, parts := range t {
		var value []byte
		for _, p := range parts[1:] {
			switch {
			case p.field < 0:
				value = append(value, p.text...)
				continue
			case a.values[p.field] == nil:
				return d, false
			}
			v := a.values[p.field]
			if p.filter != nil {
				v = p.filter(v)
			}
			value = append(value, v...)
		}
		d.Entries = append(d.Entries, descriptors.Entry{Key: parts[0].text, Value: string(value)})
	}
	return d, true
}

// missing returns an error if a field was in no line: its name may be wrong.
func (a *accessLog) missing() error {
	for i, seen := range a.seen {
		if !seen {
			return fmt.Errorf("no line has the field %q%s; the first line has %s", a.fields[i],
				spell.DidYouMean(a.fields[i], a.names), strings.Join(a.names, ", "))
		}
	}
	return nil
}
