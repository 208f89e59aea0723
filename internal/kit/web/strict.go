package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// A checker walks through valid JSON beside the Go type that it is to become,
// since encoding/json forgives much: other cases of letters, names twice, nulls,
// fields that are missing.
type checker struct {
	*json.Decoder
	ignored *ignored // nil: an unknown field is an error
	depth   int      // how many objects and arrays the value is in
}

// maxDepth bounds how many objects and arrays are in one another. Each level needs stack.
const maxDepth = 64

// maxIgnored bounds how many names of ignored fields are kept.
const maxIgnored = 8

// ignored are the unknown fields of a body.
type ignored struct {
	names []string // their paths, each once, without indexes
	body  []byte
}

// hide gives the unknown field whose name ends at an offset of the body, and begins after another, a name that nothing
// has: encoding/json would take it for a field that differs in the case of letters only.
func (g *ignored) hide(after, end int64) {
	name := g.body[after:end]
	for i := bytes.IndexByte(name, '"') + 1; i < len(name)-1; i++ {
		name[i] = '_'
	}
}

var index = regexp.MustCompile(`\[[0-9]+\]`)

func (g *ignored) add(path string) {
	if len(g.names) > maxIgnored {
		return
	}
	path = index.ReplaceAllString(Clip(path), "[]")
	switch {
	case slices.Contains(g.names, path):
	case len(g.names) == maxIgnored:
		g.names = append(g.names, "…")
	default:
		g.names = append(g.names, path)
	}
}

// raw is the type of what is checked by others, but for names that come twice.
var raw = reflect.TypeFor[json.RawMessage]()

// value checks the value that follows. Path is its name, empty for the whole.
func (c checker) value(path string, t reflect.Type) error {
	token, err := c.Token()
	if err != nil {
		return BadRequest("the body is not a JSON object: %v", err)
	}
	if _, opens := token.(json.Delim); opens {
		if c.depth++; c.depth > maxDepth {
			return c.bad(path, "is in more than %d objects and arrays", maxDepth-1)
		}
	}
	optional := t.Kind() == reflect.Pointer // null is the same as nothing
	if optional {
		t = t.Elem()
	}
	if token == json.Delim('{') && (t == raw || t.Kind() == reflect.Struct) {
		return c.object(path, t)
	}
	if token == json.Delim('[') && (t == raw || t.Kind() == reflect.Slice) {
		return c.array(path, t)
	}
	if t == raw || scalarFits(token, t) || token == nil && optional {
		return nil
	}
	return c.bad(path, "must be %s, not %s", want(t), got(token))
}

func (c checker) object(path string, t reflect.Type) error {
	fields := fieldsOf(t)
	seen := map[string]bool{}
	misspelt := map[string]error{} // by the field that was meant, if it is not there
	for c.More() {
		after := c.InputOffset()
		token, err := c.Token()
		if err != nil {
			return BadRequest("the body is not a JSON object: %v", err)
		}
		name, _ := token.(string)
		inner := join(path, name)
		if seen[name] {
			return c.bad(inner, "is there twice")
		}
		seen[name] = true
		kind := raw
		if t != raw {
			i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
			if i >= 0 {
				kind = fields[i].kind
			} else {
				if err := c.unknown(inner, name, fields, misspelt); err != nil {
					return err
				}
				c.ignored.hide(after, c.InputOffset())
			}
		}
		if err := c.value(inner, kind); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if err := misspelt[f.name]; err != nil && !seen[f.name] {
			return err
		}
		if f.required && !seen[f.name] {
			return c.bad(join(path, f.name), "is missing")
		}
	}
	_, err := c.Token()
	return err
}

// unknown deals with a field that the type does not have. Where such fields are
// ignored, one that looks like the misspelt name of a field that is missing is
// an error still: ignoring it would do something else than the client meant.
func (c checker) unknown(path, name string, fields []field, misspelt map[string]error) error {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.name
	}
	near := spell.Nearest(name, known)
	hint := ""
	if near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	err := c.bad(path, "is an unknown field%s", hint)
	switch {
	case c.ignored == nil:
		return err
	case near != "":
		misspelt[near] = err
	}
	c.ignored.add(path)
	return nil
}

func (c checker) array(path string, t reflect.Type) error {
	element := raw
	if t != raw {
		element = t.Elem()
	}
	for i := 0; c.More(); i++ {
		if err := c.value(extend(path, "["+strconv.Itoa(i)+"]"), element); err != nil {
			return err
		}
	}
	_, err := c.Token()
	return err
}

// bad is about the value that was just read.
func (c checker) bad(path, format string, args ...any) error {
	path = cmp.Or(path, "the body")
	return BadRequest("%s %s (at byte %d)", Clip(path), fmt.Sprintf(format, args...), c.InputOffset())
}

// Clip bounds what an answer or a log repeats of a request: a text of the client's
// has at most 120 bytes there, and is valid UTF-8.
func Clip(text string) string {
	if len(text) <= maxClip {
		return strings.ToValidUTF8(text, "?")
	}
	return strings.ToValidUTF8(text[:maxClip], "?") + "…"
}

const maxClip = 120

func join(path, name string) string {
	if path == "" {
		return name
	}
	return extend(path, "."+name)
}

// extend appends to a path, unless nobody would see it: a path is shown clipped.
func extend(path, more string) string {
	if len(path) > maxClip {
		return path
	}
	return path + more
}

type field struct {
	name     string // in JSON
	kind     reflect.Type
	required bool
}

// fieldsOf returns the fields of a struct; other types have none.
func fieldsOf(t reflect.Type) (fields []field) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, field{name: name, kind: f.Type, required: options == ""})
	}
	return fields
}

func scalarFits(token json.Token, t reflect.Type) bool {
	switch v := token.(type) {
	case string:
		return t.Kind() == reflect.String
	case bool:
		return t.Kind() == reflect.Bool
	case json.Number:
		_, err := readInteger(v.String())
		return t == integer && err == nil
	}
	return false
}

// An Integer is a whole number of at most 15 digits, which every client's numbers
// can hold. As in JSON Schema, 100, 100.0 and 1e2 are the same.
type Integer int64

var integer = reflect.TypeFor[Integer]()

// UnmarshalJSON implements json.Unmarshaler.
func (i *Integer) UnmarshalJSON(text []byte) (err error) {
	*i, err = readInteger(string(text))
	return err
}

func readInteger(text string) (Integer, error) {
	f, err := strconv.ParseFloat(text, 64) // exact for whole numbers of this size
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1e15 {
		return 0, fmt.Errorf("%s is not a whole number of at most 15 digits", Clip(text))
	}
	return Integer(f), nil
}

func want(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int64:
		return "a whole number of at most 15 digits"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

func got(token json.Token) string {
	switch v := token.(type) {
	case string:
		return "a string"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return "the number " + Clip(v.String())
	case json.Delim:
		return map[json.Delim]string{'{': "an object", '[': "an array"}[v]
	}
	return "null"
}

// loneSurrogate returns where valid JSON has half of a surrogate pair, which
// encoding/json would turn into U+FFFD without a word, or -1.
func loneSurrogate(body []byte) int {
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		switch half := surrogate(body[i:]); {
		case half == 'h' && surrogate(body[i+6:]) == 'l':
			i += 11
		case half != 0:
			return i
		default:
			i++ // what is escaped may be another backslash
		}
	}
	return -1
}

// surrogate reports whether the escape that text starts with is the high (h) or the low (l)
// half of a pair, or neither (0).
func surrogate(text []byte) byte {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 32)
	switch {
	case err != nil || n < 0xD800 || n > 0xDFFF:
		return 0
	case n < 0xDC00:
		return 'h'
	}
	return 'l'
}
