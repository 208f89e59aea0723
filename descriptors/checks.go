package descriptors

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// A spot is what problems are reported of: a rule, a limit or a tier, with the
// places of its fields.
type spot struct {
	b      *builder
	place  Place
	fields Fields
	path   fmt.Stringer // in the tree of rules
}

// part returns the spot of a limit or tier of the rule at s.
func (s *spot) part(place Place, fields Fields) *spot {
	if place == (Place{}) {
		place = s.place
	}
	return &spot{s.b, place, fields, s.path}
}

func (s *spot) isBroken(broken bool) bool { return s.b.isBroken(broken, s.place, s.path) }

// errorf reports a problem of a field; of the whole if field is empty or has no
// place.
func (s *spot) errorf(field, format string, args ...any) {
	s.report(field, isError, format, args...)
}

func (s *spot) warnf(field, format string, args ...any) {
	s.report(field, isWarning, format, args...)
}

func (s *spot) report(field string, warning bool, format string, args ...any) {
	path := ""
	if !s.b.Full() { // else nobody sees the path, which takes time to make
		path = s.path.String()
	}
	s.b.at(s.fields.place(field, s.place), path, warning, format, args...)
}

// text checks a text that has at most so many bytes.
func (s *spot) text(field, what, text string, most int) bool {
	problem := wrongText(what, text, most)
	if problem != "" {
		s.errorf(field, "%s", problem)
	}
	return problem == ""
}

// wrongText returns what is wrong with a text, or "".
func wrongText(what, text string, most int) string {
	switch {
	case len(text) > most:
		return fmt.Sprintf("%s has %d bytes; at most %d are allowed", what, len(text), most)
	case !utf8.ValidString(text):
		return what + " is not valid UTF-8"
	}
	return ""
}

// between checks a number.
func (s *spot) between(field string, n, least, most int64) bool {
	if n < least || n > most {
		s.errorf(field, "%s %d is outside %d to %d", field, n, least, most)
		return false
	}
	return true
}

// name checks the name of a limit or tier. It goes into a response header
// between quotes.
func (s *spot) name(name string) bool { return s.visible("name", name) }

// visible checks a name in a field, as name does.
func (s *spot) visible(field, name string) bool {
	if !s.text(field, field, name, maxName) {
		return false
	}
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			s.errorf(field, "%s %q must be of visible ASCII characters without quotes and backslashes", field, name)
			return false
		}
	}
	return true
}

// answer checks what a refusal has and returns the headers with their names in
// lower case, sorted.
func (s *spot) answer(content string, headers []Header) []Header {
	s.text("content", "content", content, maxContent)
	if len(headers) > maxHeaders {
		s.errorf("headers", "a response has at most %d headers, not %d", maxHeaders, len(headers))
		return nil
	}
	var out []Header
	for _, h := range headers {
		field, name := "header "+h.Name, strings.ToLower(h.Name)
		at, twice := slices.BinarySearchFunc(out, name, byName)
		switch err := checkHeaderName(name); {
		case err != nil:
			s.errorf(field, "header %q %v", spell.Short(h.Name), err)
		case twice:
			s.errorf(field, "header %q is given twice; header names are the same in upper and lower case", name)
		case !s.text(field, "header "+name, h.Value, maxHeaderValue):
		case strings.TrimSpace(h.Value) != h.Value || strings.ContainsFunc(h.Value,
			func(c rune) bool { return c < ' ' || c == 0x7f }):
			s.errorf(field, "the value of header %q must have no control characters, and no space around it", name)
		default:
			out = slices.Insert(out, at, Header{name, h.Value})
		}
	}
	return out
}

func byName(h Header, name string) int { return strings.Compare(h.Name, name) }

// metadata checks what goes into the dynamic metadata of answers.
func (s *spot) metadata(m map[string]any) {
	if m == nil {
		return
	}
	values := 0
	if problem := wrongMetadata(m, 0, &values); problem != "" {
		s.errorf("metadata", "metadata %s", problem)
	}
}

// wrongMetadata returns what is wrong with a value at a depth, or "". It counts
// values.
func wrongMetadata(v any, depth int, values *int) string {
	if *values++; *values > MaxMetadataValues {
		return fmt.Sprintf("has more than %d values", MaxMetadataValues)
	}
	if depth > MaxMetadataDepth {
		return fmt.Sprintf("is nested deeper than %d", MaxMetadataDepth)
	}
	switch v := v.(type) {
	case nil, bool, int64:
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprintf("%v is not a finite number", v)
		}
	case string:
		return wrongText("text", v, maxContent)
	case []any:
		for _, e := range v {
			if problem := wrongMetadata(e, depth+1, values); problem != "" {
				return problem
			}
		}
	case map[string]any:
		for key, e := range v {
			problem := wrongText("key", key, maxContent)
			if problem == "" {
				problem = wrongMetadata(e, depth+1, values)
			}
			if problem != "" {
				return problem
			}
		}
	default:
		return fmt.Sprintf("has a value of type %T", v)
	}
	return ""
}
