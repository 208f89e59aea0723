package replay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A Mapping makes requests of the lines of an access log. Fields of objects in objects are written with dots.
type Mapping struct {
	Domain      string
	Descriptors []string // as tenant={tenant},path={path|no-query}
	Time        string   // the field with the time of the beginning; "": that of the form, if it is known
	Duration    string   // the field with the duration in milliseconds; "": that of the form
	Cost        string   // the field with the cost; "": one
}

// Used reports whether there is anything to map.
func (m *Mapping) Used() bool {
	return m.Domain != "" || len(m.Descriptors) > 0 || m.Time != "" || m.Duration != "" || m.Cost != ""
}

// An accessLog reads access logs of Envoy.
type accessLog struct {
	Mapping
	form     *form
	clock    clock
	fields   []string // that are mapped, and then those that say what was answered
	asking   int      // fields[:asking] are what requests are made of
	required int      // fields[:required] must be in some line
	seen     []bool   // in any line
	names    []string // of the fields of the first line
	values   [][]byte // of the line; nil: it has none

	order []place // of the fields of the line before
	nth   int     // of the field that is read next

	cuts   [][]byte // of a line in text, by the fields of its format
	places []int    // in fields, of these

	patterns             []pattern
	time, duration, cost int // in fields; -1: none
	method, code, flags  int
	upstream             int

	requests map[string]made
	size     int
	key      []byte

	own     []ownKeys // by patterns
	spent   uint64    // by the lines that say what they cost
	costs   uint64    // these lines
	assumed int64     // refused lines, whose cost is the average
	failed  int64     // lines that failed, and say no cost
}

// made is the request of a line.
type made struct {
	*asked
	patterns []int // of its descriptors
}

// A place maps the name of a field to the index of its value; -1: the field is not used.
type place struct {
	name []byte
	at   int
}

// maxOrder bounds the fields whose places are kept, and maxName their names, in bytes.
const maxOrder, maxName = 1000, 100

func newAccessLog(m Mapping, f *form) (*accessLog, error) {
	if f.known() {
		m.Time = cmp.Or(m.Time, startTime)
	}
	if err := m.check(f); err != nil {
		return nil, err
	}
	a := &accessLog{Mapping: m, form: f, duration: -1, cost: -1, own: make([]ownKeys, len(m.Descriptors))}
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
	a.required = len(a.fields)
	if a.duration < 0 && f.known() {
		a.duration = a.field(durationField)
	}
	a.method, a.code = a.field(methodField), a.field(codeField)
	a.flags, a.upstream = a.field(flagsField), a.field(upstreamField)
	a.seen, a.values = make([]bool, len(a.fields)), make([][]byte, len(a.fields))
	if f.text != nil {
		a.placePieces()
	}
	return a, nil
}

// check returns an error if something is missing for files of a form.
func (m *Mapping) check(f *form) error {
	missing := ""
	switch {
	case m.Domain == "":
		missing = "--domain is missing: the domain of the requests in an access log"
	case len(m.Descriptors) == 0:
		missing = "--descriptor is missing: what descriptors to make, as in 'tenant={tenant},path={path|no-query}'"
	case m.Time == "":
		missing = "--time is missing: the field with the time at which a request began"
	default:
		return nil
	}
	if f.known() {
		missing = "the file is in " + f.name + ": " + missing
	}
	return errors.New(missing)
}

// placePieces notes where the fields of a format in text are among those that are used.
func (a *accessLog) placePieces() {
	a.names = a.form.text.names()
	a.cuts = make([][]byte, len(a.names))
	for _, name := range a.names {
		at := slices.Index(a.fields, name)
		a.places = append(a.places, at)
		if at >= 0 {
			a.seen[at] = true
		}
	}
}

// field returns the place of a field among those that are mapped.
func (a *accessLog) field(name string) int {
	if i := slices.Index(a.fields, name); i >= 0 {
		return i
	}
	a.fields = append(a.fields, name)
	return len(a.fields) - 1
}

func (a *accessLog) parse(text []byte, l *line) (err error) {
	*l = line{}
	clear(a.values)
	if err := a.readLine(text); err != nil {
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
			return fmt.Errorf("%s: %.40q is not a number of milliseconds", a.fields[a.duration], a.values[a.duration])
		}
		l.until = l.at + limit.Instant(ms*1000+0.5)
	}
	l.asked, err = a.request()
	return err
}

var errNoForm = errors.New("the line is no object in JSON, and the file is not in a format of text that replay " +
	"knows: Envoy's and Istio's default")

// readLine reads the values of a line.
func (a *accessLog) readLine(text []byte) error {
	if a.form.text == nil {
		s := scanner{text: text}
		if c := s.next(); c != '{' && c != 0 {
			return errNoForm
		}
		a.nth = 0
		var first *[]string
		if a.names == nil {
			first, a.names = &a.names, []string{}
		}
		if err := a.read(&s, nil, 0, first); err != nil {
			return err
		}
		return s.end()
	}
	if !a.form.text.cut(text, a.cuts) {
		return fmt.Errorf("the line is not in %s", a.form.name)
	}
	for i, at := range a.places {
		if at >= 0 {
			a.note(at, a.cuts[i])
		}
	}
	return nil
}

// note notes the value of a field. Envoy writes null, or - in texts, where it has none.
func (a *accessLog) note(at int, value []byte) {
	if len(value) == 0 || string(value) == "-" {
		value = nil
	}
	a.seen[at], a.values[at] = true, value
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
			a.note(at, value)
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

// What a line says was answered.
const (
	unknownAnswer = iota
	admitted
	refused
)

// answer returns what the line says was answered. The flag RL is that of a rate limit, whatever the status is. Without
// flags, a 429 is a refusal if no server has answered it.
func (a *accessLog) answer() byte {
	code, flags := a.values[a.code], a.values[a.flags]
	switch {
	case hasFlag(flags, "RL"):
		return refused
	case code == nil:
		return unknownAnswer
	case string(code) != "429" || a.seen[a.flags] || a.values[a.upstream] != nil:
		return admitted
	case a.seen[a.upstream]:
		return refused
	}
	return unknownAnswer
}

func hasFlag(flags []byte, flag string) bool {
	for f := range bytes.SplitSeq(flags, []byte(",")) {
		if string(f) == flag {
			return true
		}
	}
	return false
}

// request makes the request of a line. It is nil if every descriptor lacks a value: Envoy, too, leaves out a descriptor
// whose value is missing. It is nil as well if the line has no method: Envoy asks nothing about connections, and about
// requests that it cannot read.
func (a *accessLog) request() (*asked, error) {
	answer := a.answer()
	cost, err := a.costOf(answer)
	if err != nil {
		return nil, err
	}
	a.key = binary.AppendUvarint(append(a.key[:0], answer), cost)
	for i := range a.fields[:a.asking] {
		size := uint64(0)
		if a.values[i] != nil {
			size = 1 + uint64(len(a.values[i]))
		}
		a.key = append(binary.AppendUvarint(a.key, size), a.values[i]...)
	}
	if a.values[a.method] == nil && a.form.known() && a.seen[a.method] {
		return &asked{}, nil
	}
	m, found := a.requests[string(a.key)]
	if !found {
		m = a.make(answer, cost)
		if a.size += memoryOf(a.key); a.size > kept || a.requests == nil {
			a.requests, a.size = map[string]made{}, 0
		}
		a.requests[string(a.key)] = m
	}
	for i, of := range m.patterns {
		a.own[of].add(&m.request.Descriptors[i])
	}
	return m.asked, nil
}

func (a *accessLog) make(answer byte, cost uint64) (m made) {
	q := newQuestion()
	q.answered, q.refused = answer != unknownAnswer, answer == refused
	r := q.request
	r.Domain = a.Domain
	for i, t := range a.patterns {
		if d, ok := a.descriptor(t); ok {
			d.HasHits, d.Hits = a.cost >= 0, cost
			r.Descriptors, m.patterns = append(r.Descriptors, d), append(m.patterns, i)
		}
	}
	if len(r.Descriptors) == 0 {
		q.request = nil
	}
	m.asked = &q.asked
	return m
}

// costOf returns what the request of the line costs. A refused request has not come to where costs are known: it counts
// as the average of those before. One that has failed has cost nothing.
func (a *accessLog) costOf(answer byte) (uint64, error) {
	if a.cost < 0 {
		return 0, nil
	}
	text := a.values[a.cost]
	if text == nil {
		return a.costUnsaid(answer)
	}
	cost, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is not a cost: an integer from 0", a.Cost, text)
	}
	if a.spent < math.MaxInt64 {
		a.spent, a.costs = a.spent+cost, a.costs+1
	}
	return cost, nil
}

// costUnsaid returns what the request of a line costs that does not say it.
func (a *accessLog) costUnsaid(answer byte) (uint64, error) {
	code := a.values[a.code]
	switch {
	case answer == refused:
		a.assumed++
		return a.spent / max(a.costs, 1), nil
	case code != nil && code[0] != '2':
		a.failed++
		return 0, nil
	}
	return 0, fmt.Errorf("the line has no field %q", a.Cost)
}

func (a *accessLog) descriptor(t pattern) (d ratelimit.Descriptor, ok bool) {
	for _, parts := range t {
		text := value(parts, a.values)
		if text == nil {
			return d, false
		}
		d.Entries = append(d.Entries, descriptors.Entry{Key: parts[0].text, Value: string(text)})
	}
	return d, true
}

// notes say what is odd about the lines.
func (a *accessLog) notes() (list []string) {
	for i := range a.own {
		if note := a.own[i].note(a.Descriptors[i], a.patterns[i]); note != "" {
			list = append(list, note)
		}
	}
	if a.assumed > 0 {
		list = append(list, lines(a.assumed, "was refused and so has no ", "were refused and so have no ")+a.Cost+
			": each counts as the average of those before")
	}
	if a.failed > 0 {
		list = append(list, lines(a.failed, "has failed and so has no ", "have failed and so have no ")+a.Cost+
			": each counts as 0")
	}
	return list
}

// missing returns an error if a field was in no line: its name may be wrong.
func (a *accessLog) missing() error {
	for i, seen := range a.seen[:a.required] {
		if !seen {
			return fmt.Errorf("no line has the field %q%s; the first line has %s", a.fields[i],
				spell.DidYouMean(a.fields[i], a.names), strings.Join(a.names, ", "))
		}
	}
	return nil
}
