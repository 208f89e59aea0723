package replay

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/virtual"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A line is a request that somebody made.
type line struct {
	at    limit.Instant
	until limit.Instant // when it ended; 0: not known
	n     int           // of the line in its file
	*asked
}

// asked is what a line says besides its times. Equal lines share it.
type asked struct {
	request  *ratelimit.Request // nil: the line asks for nothing
	answered bool               // the line says what was answered
	refused  bool
	rule     string // that refused
	cost     int64  // of a request with reservations, as [virtual.World.Hold] takes it
}

// A question is a request and what is known about it, in one piece of memory: a replay mostly waits for memory.
type question struct {
	asked
	own    ratelimit.Request
	may    ratelimit.Estimate
	recall ratelimit.Recall
}

// newQuestion returns a question with an empty request.
func newQuestion() *question {
	q := new(question)
	q.request = &q.own
	q.own.InProcess, q.own.Recall, q.own.Estimate = true, &q.recall, &q.may
	q.may.AsSent, q.cost = true, virtual.Unknown
	return q
}

// A parser reads the lines of a format.
type parser interface {
	parse(text []byte, l *line) error
}

// kept bounds what parsers keep of former lines, in bytes.
const kept = 64 << 20

// memoryOf returns roughly how many bytes a kept question takes, with its key. TestMemoryOfKeys measures it.
func memoryOf(text []byte) int { return 3*len(text) + 400 }

// A capture reads captures of headgate: a RateLimitRequest in JSON with "t", and possibly "until", "code" and "rule".
type capture struct {
	clock clock
	// frames are lines without their times. Most lines differ from others in these only.
	frames map[string]*asked
	size   int
	frame  []byte
	twice  bool // whole found a time twice in the line, so the line has no frame
}

func (c *capture) parse(text []byte, l *line) (err error) {
	if tail := c.usual(text, l); tail != nil {
		if a, ok := c.frames[string(tail)]; ok {
			l.until, l.asked = 0, a
			return nil
		}
	}
	times := *l
	framed := c.cutTimes(text, &times)
	if framed {
		if a, ok := c.frames[string(c.frame)]; ok {
			*l = times
			l.asked = a
			return nil
		}
	}
	*l = line{}
	err = c.whole(text, l)
	if err != nil || !framed || c.twice || times.at != l.at || times.until != l.until {
		return err
	}
	if tail := c.usual(text, &times); tail != nil && l.until == 0 {
		c.frame = append(c.frame[:0], tail...)
	}
	if c.size += memoryOf(c.frame); c.size > kept || c.frames == nil {
		c.frames, c.size = map[string]*asked{}, 0
	}
	c.frames[string(c.frame)] = l.asked
	return nil
}

var start, begin, end = []byte(`{"t":"`), []byte(`"t":`), []byte(`"until":`)

// usual reads the time of a line that begins with it, as serve writes it, and returns the rest; nil if it does not.
func (c *capture) usual(text []byte, l *line) (tail []byte) {
	const shortest, longest = len("2006-01-02T15:04:05Z"), len("2006-01-02T15:04:05.999999999Z")
	if len(text) < len(start)+longest+1 || string(text[:len(start)]) != string(start) {
		return nil
	}
	text = text[len(start):]
	n := shortest + bytes.IndexByte(text[shortest:longest+1], '"')
	at, ok := c.clock.utc(text[:max(n, 0)])
	if n < shortest || !ok {
		return nil
	}
	l.at = at
	return text[n:]
}

// cutTimes reads the times of a line, and leaves the rest in c.frame. It returns false if their form is not the usual
// one.
//
// A line whose frame is that of a line that was read has its times where that one had them: in a string, the names of
// these fields would be escaped.
func (c *capture) cutTimes(text []byte, l *line) (ok bool) {
	l.until = 0
	c.frame = c.frame[:0]
	rest, ok := c.cut(text, begin, &l.at)
	if !ok {
		return false
	}
	if after, found := c.cut(rest, end, &l.until); found {
		rest = after
	} else if bytes.Contains(text, end) {
		return false
	}
	c.frame = append(c.frame, rest...)
	return true
}

// cut appends what is before a time to c.frame, and returns what is after it.
func (c *capture) cut(text, name []byte, at *limit.Instant) (rest []byte, ok bool) {
	i := bytes.Index(text, name)
	if i < 0 {
		return nil, false
	}
	if i += len(name); i < len(text) && text[i] == ' ' {
		i++
	}
	if i >= len(text) || text[i] != '"' {
		return nil, false
	}
	i++
	n := bytes.IndexByte(text[i:min(len(text), i+40)], '"')
	if n < 0 {
		return nil, false
	}
	t, ok := c.clock.utc(text[i : i+n])
	if !ok {
		return nil, false
	}
	*at = t
	c.frame = append(append(c.frame, text[:i]...), 0)
	return text[i+n:], true
}

// captureFields are the fields of a line of a capture.
var captureFields = []string{"t", "until", "domain", "descriptors", "hitsAddend", "hits_addend", "code", "rule",
	"estimate", "cost", "failed", "v"}

// captureVersion is that of lines whose fields this version knows. A line without "v" has version 1.
const captureVersion = 1

// whole reads a line of any order.
func (c *capture) whole(text []byte, l *line) error {
	s := scanner{text: text}
	q := newQuestion()
	req := q.request
	l.asked, c.twice = &q.asked, false
	var begun, ended bool
	err := s.object(func(name []byte) error {
		switch string(name) {
		case "t":
			c.twice, begun = c.twice || begun, true
			return c.time(&s, "t", &l.at)
		case "until":
			c.twice, ended = c.twice || ended, true
			return c.time(&s, "until", &l.until)
		case "v":
			n, err := s.natural("v", math.MaxInt32)
			if err == nil && n > captureVersion {
				err = fmt.Errorf("v is %d, and not %d: %w", n, captureVersion, limit.ErrLater)
			}
			return err
		case "domain":
			return s.keep(&req.Domain)
		case "rule":
			return s.keep(&l.rule)
		case "code":
			var code string
			err := s.keep(&code)
			l.answered, l.refused = code != "", code == "OVER_LIMIT"
			return err
		case "hitsAddend", "hits_addend":
			n, err := s.natural("hitsAddend", math.MaxUint32)
			req.Hits = uint32(n)
			return err
		case "estimate":
			n, err := s.natural("estimate", math.MaxInt64)
			q.may.Units = n
			return err
		case "cost":
			n, err := s.natural("cost", math.MaxInt64)
			q.cost = int64(n)
			return err
		case "failed":
			word, err := s.scalar()
			if string(word) == "true" {
				q.cost = virtual.Failed
			}
			return err
		case "descriptors":
			req.Descriptors = nil // the last of repeated fields counts, as elsewhere
			return s.list('[', ']', func() error {
				req.Descriptors = append(req.Descriptors, ratelimit.Descriptor{})
				return s.descriptor(&req.Descriptors[len(req.Descriptors)-1])
			})
		}
		return unknown(name, captureFields)
	})
	if err == nil {
		err = s.end()
	}
	switch {
	case err != nil:
		return err
	case l.at == 0:
		return fmt.Errorf("t is missing: when the request was made")
	case req.Domain == "" || len(req.Descriptors) == 0:
		return fmt.Errorf("domain or descriptors are missing")
	}
	return nil
}

func unknown(name []byte, fields []string) error {
	return fmt.Errorf("unknown field %.40q%s", name, spell.DidYouMean(string(name), fields))
}

func (c *capture) time(s *scanner, name string, to *limit.Instant) error {
	word, err := s.scalar()
	if err == nil && word != nil {
		if *to, err = c.clock.read(word); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	return err
}

// keep reads a string to keep.
func (s *scanner) keep(to *string) error {
	word, err := s.scalar()
	*to = string(word)
	return err
}

var descriptorFields = []string{"entries", "limit", "hitsAddend", "hits_addend", "isNegativeHits", "is_negative_hits"}

func (s *scanner) descriptor(d *ratelimit.Descriptor) error {
	return s.object(func(name []byte) (err error) {
		switch string(name) {
		case "entries":
			d.Entries = nil
			return s.list('[', ']', func() error {
				d.Entries = append(d.Entries, descriptors.Entry{})
				return s.entry(&d.Entries[len(d.Entries)-1])
			})
		case "limit":
			d.HasOverride = true
			return s.override(&d.Override)
		case "hitsAddend", "hits_addend":
			d.HasHits = true
			d.Hits, err = s.natural("hitsAddend", math.MaxUint64)
			return err
		case "isNegativeHits", "is_negative_hits":
			word, err := s.scalar()
			d.Refund = string(word) == "true"
			return err
		}
		return unknown(name, descriptorFields)
	})
}

func (s *scanner) entry(e *descriptors.Entry) error {
	return s.object(func(name []byte) error {
		switch string(name) {
		case "key":
			return s.keep(&e.Key)
		case "value":
			return s.keep(&e.Value)
		}
		return unknown(name, []string{"key", "value"})
	})
}

var overrideFields = []string{"requestsPerUnit", "requests_per_unit", "unit", "unitMultiplier", "unit_multiplier"}

// override reads the limit that a request brings.
func (s *scanner) override(o *ratelimit.Override) error {
	return s.object(func(name []byte) error {
		switch string(name) {
		case "requestsPerUnit", "requests_per_unit":
			n, err := s.natural("requestsPerUnit", math.MaxUint32)
			o.RequestsPerUnit = uint32(n)
			return err
		case "unitMultiplier", "unit_multiplier":
			n, err := s.natural("unitMultiplier", math.MaxUint32)
			o.Multiplier = uint32(n)
			return err
		case "unit":
			var unit string
			err := s.keep(&unit)
			u, ok := units.Named(strings.ToLower(unit))
			if err == nil && !ok {
				return fmt.Errorf("limit: unknown unit %.20q%s", unit, spell.DidYouMean(unit, units.Names()))
			}
			o.Unit = ratelimit.Unit(u.Number)
			return err
		}
		return unknown(name, overrideFields)
	})
}
