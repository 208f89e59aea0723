package replay

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A scanner reads JSON in place: most of a replay would be encoding/json otherwise.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("column %d: %s", s.at+1, fmt.Sprintf(format, args...))
}

// next skips white space and returns the next byte, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) want(c byte) error {
	if s.next() != c {
		return s.errorf("want %q", c)
	}
	s.at++
	return nil
}

// maxDepth bounds objects and lists in each other.
const maxDepth = 32

// list reads what is between brackets, with commas between its parts.
func (s *scanner) list(open, end byte, part func() error) error {
	if err := s.want(open); err != nil {
		return err
	}
	if s.next() == end {
		s.at++
		return nil
	}
	for {
		if err := part(); err != nil {
			return err
		}
		c := s.next()
		if c != ',' && c != end {
			return s.errorf("want ',' or %q", end)
		}
		s.at++
		if c == end {
			return nil
		}
	}
}

// object calls field at each value.
func (s *scanner) object(field func(name []byte) error) error {
	return s.list('{', '}', func() error {
		name, err := s.str()
		if err != nil {
			return err
		}
		if err := s.want(':'); err != nil {
			return err
		}
		return field(name)
	})
}

// str reads a string. It is a part of the text unless it has escapes.
func (s *scanner) str() ([]byte, error) {
	if s.next() != '"' {
		return nil, s.errorf("want a string")
	}
	start, escaped := s.at, false
	for s.at++; s.at < len(s.text); s.at++ {
		if s.at += plain(s.text[s.at:]); s.at == len(s.text) {
			break
		}
		switch s.text[s.at] {
		case '\\':
			escaped = true
			s.at++
		case '"':
			s.at++
			if !escaped {
				return s.text[start+1 : s.at-1], nil
			}
			var plain string
			if err := json.Unmarshal(s.text[start:s.at], &plain); err != nil {
				return nil, s.errorf("%v", err)
			}
			return []byte(plain), nil
		default:
			return nil, s.errorf("a control character in a string")
		}
	}
	return nil, s.errorf("the line ends in a string")
}

// plain returns the number of bytes before the first quote, backslash or control character. It compares eight bytes at
// a time, as in "Bit Twiddling Hacks": of the bits that it sets, the lowest one is always right.
func plain(text []byte) (n int) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; n+8 <= len(text); n += 8 {
		x := binary.LittleEndian.Uint64(text[n:])
		quote, backslash := x^ones*'"', x^ones*'\\'
		found := ((quote-ones)&^quote | (backslash-ones)&^backslash | (x-ones*' ')&^x) & highs
		if found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for ; n < len(text); n++ {
		if c := text[n]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return n
}

// scalar reads a value that is no object and no list: the text of a string or a number, nil for null.
func (s *scanner) scalar() ([]byte, error) {
	switch c := s.next(); {
	case c == '"':
		return s.str()
	case c == '{' || c == '[' || c == 0:
		return nil, s.errorf("want a string or a number")
	}
	start := s.at
	integer := true
	for ; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		if c >= '0' && c <= '9' {
			continue
		}
		if c == ',' || c == ']' || c == '}' || c == ' ' || c == '\t' || c == '\r' || c == '\n' {
			break
		}
		integer = false
	}
	word := s.text[start:s.at]
	if integer && len(word) > 0 && word[0] != '0' {
		return word, nil
	}
	if !json.Valid(word) {
		s.at = start
		return nil, s.errorf("%.20q is no JSON", word)
	}
	if string(word) == "null" {
		return nil, nil
	}
	return word, nil
}

// skip passes over a value.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.errorf("more than %d objects in each other", maxDepth)
	}
	switch s.next() {
	case '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case '[':
		return s.list('[', ']', func() error { return s.skip(depth + 1) })
	}
	_, err := s.scalar()
	return err
}

// end wants nothing more.
func (s *scanner) end() error {
	if s.next() != 0 {
		return s.errorf("more text after the object")
	}
	return nil
}

// natural reads an integer that is not negative, as a number or in a string.
func (s *scanner) natural(name string, most uint64) (uint64, error) {
	word, err := s.scalar()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(word), 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%s: %.20q is not an integer from 0 to %d", name, word, most)
	}
	return n, nil
}

// A clock reads times.
type clock struct {
	minute [len("2006-01-02T15:04:")]byte
	begin  limit.Instant // of the minute; 0 before the first time
}

// read returns an instant from a time of RFC 3339, or from a number of seconds, milliseconds or microseconds since
// 1970.
func (c *clock) read(text []byte) (limit.Instant, error) {
	if at, ok := c.utc(text); ok {
		return at, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, string(text)); err == nil && t.Year() >= 1970 {
		return limit.InstantOf(t), nil
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(n > 0 && n < 1e16) {
		return 0, fmt.Errorf("%.40q is not a time such as 2026-01-31T23:59:00.123Z, or a number since 1970", text)
	}
	switch {
	case n < 1e11:
		n *= 1e6
	case n < 1e14:
		n *= 1e3
	}
	return limit.Instant(n + 0.5), nil
}

// utc reads the usual form: 2006-01-02T15:04:05.999999Z.
func (c *clock) utc(text []byte) (limit.Instant, bool) {
	const size = len("2006-01-02T15:04:05")
	if len(text) <= size || text[len(text)-1] != 'Z' {
		return 0, false
	}
	if n := len(c.minute); c.begin == 0 || string(text[:n]) != string(c.minute[:]) {
		t, err := time.Parse("2006-01-02T15:04:", string(text[:n]))
		if err != nil || t.Year() < 1970 {
			return 0, false
		}
		copy(c.minute[:], text)
		c.begin = limit.InstantOf(t)
	}
	sec, ok := digits(text[17:19])
	if !ok || sec > 59 {
		return 0, false
	}
	at := c.begin + limit.Instant(sec)*1_000_000
	part := text[size : len(text)-1]
	if len(part) == 0 {
		return at, true
	}
	n, ok := digits(part[1:min(len(part), 7)])
	if part[0] != '.' || !ok || len(part) > 10 {
		return 0, false
	}
	if len(part) > 7 {
		if _, ok := digits(part[7:]); !ok {
			return 0, false
		}
	}
	for range 7 - len(part) {
		n *= 10
	}
	return at + limit.Instant(n), true
}

func digits(text []byte) (n int64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(text) > 0
}
