package descriptors

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
)

// A path is as long as the proxy lets it be, and all of it counts: what is not
// looked at could hide a request from its rule. So everything here takes time
// in proportion to the length.

// splitTarget cuts what Envoy calls :path into path and query.
func splitTarget(target string) (path, query string) {
	target, _, _ = strings.Cut(target, "#")
	path, query, _ = strings.Cut(target, "?")
	return path, query
}

// normalPath returns path in the one form in which paths are compared, so that
// how a client spells a path does not matter:
//
//   - percent escapes are decoded, once, where they are valid;
//   - an escaped slash stays "%2F", since it separates nothing, and a percent
//     sign becomes "%25";
//   - empty segments and "." are dropped, ".." drops the segment before it;
//   - a slash at the end is dropped;
//   - with cutParams, a segment ends at its first semicolon that is not escaped.
//
// A path that does not start with a slash is left as it is.
func normalPath(path string, cutParams bool) string {
	if path == "" || path[0] != '/' || isNormalPath(path) && !(cutParams && hasParams(path)) {
		return path
	}
	if len(path) <= stackPath {
		var buf [stackPath + 64]byte
		return orSlash(appendNormal(buf[:0], path, cutParams))
	}
	p := groupBuffers.Get().(*[]byte)
	buf := appendNormal(slices.Grow((*p)[:0], len(path)+16), path, cutParams)
	normal := orSlash(buf)
	if cap(buf) <= maxPooledGroup {
		*p = buf
		groupBuffers.Put(p)
	}
	return normal
}

// stackPath is the length of paths whose normal form is built on the stack.
const stackPath = 448

func appendNormal(out []byte, path string, cutParams bool) []byte {
	for rest := path; rest != ""; {
		if len(rest) > 1 && rest[1] == '/' {
			rest = rest[1:]
			continue
		}
		var segment string
		segment, rest = cutSegment(rest)
		if cutParams {
			segment, _, _ = strings.Cut(segment, ";")
		}
		out = appendSegment(out, segment)
	}
	return out
}

func orSlash(path []byte) string {
	if len(path) == 0 {
		return "/"
	}
	return string(path)
}

// hasParams reports whether a segment of path has matrix parameters.
func hasParams(path string) bool { return strings.IndexByte(path, ';') >= 0 }

// isNormalPath reports whether path, which starts with a slash, is certain to be in its
// normal form.
func isNormalPath(path string) bool {
	for i := range len(path) {
		switch path[i] {
		case '%':
			return false
		case '/':
			if i+1 == len(path) {
				return i == 0
			}
			if path[i+1] == '/' || path[i+1] == '.' {
				return false
			}
		}
	}
	return true
}

// cutSegment returns the first segment of path, which starts with a slash, and
// what follows: nothing, or a path.
func cutSegment(path string) (segment, rest string) {
	path = path[1:]
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

// appendSegment appends a raw segment to a path in normal form.
func appendSegment(out []byte, raw string) []byte {
	if raw == "" { // many of them are quick
		return out
	}
	start := len(out)
	out = append(out, '/')
	for i := 0; i < len(raw); i++ {
		c, escaped := raw[i], false
		if c == '%' && i+2 < len(raw) && isHex(raw[i+1]) && isHex(raw[i+2]) {
			c, escaped = unhex(raw[i+1])<<4|unhex(raw[i+2]), true
			i += 2
		}
		switch {
		case c == '/' && escaped:
			out = append(out, "%2F"...)
		case c == '%':
			out = append(out, "%25"...)
		default:
			out = append(out, c)
		}
	}
	switch string(out[start+1:]) {
	case "", ".":
		return out[:start]
	case "..":
		return out[:max(0, bytes.LastIndexByte(out[:start], '/'))]
	}
	return out
}

// plainSegment undoes what keeps a segment of a normal path apart from others.
func plainSegment(segment string) string {
	if strings.IndexByte(segment, '%') < 0 {
		return segment
	}
	return strings.NewReplacer("%2F", "/", "%25", "%").Replace(segment)
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// A queryString finds parameters by name, the first of each, decoded like
// net/url does: what is not valid there is not a parameter. It keeps those that
// are wanted, which are as many as rules ask for, and reads no further than it
// must to find them.
type queryString struct {
	raw    string
	wanted map[string]bool
	read   bool
	few    [fewParams]Entry
	n      int
	many   map[string]string // where more of those wanted are found
}

const fewParams = 8

func (q *queryString) get(name string) (string, bool) {
	if !q.read {
		q.read = true
		q.parse()
	}
	return q.found(name)
}

func (q *queryString) parse() {
	for rest := q.raw; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		if pair == "" || strings.IndexByte(pair, ';') >= 0 {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil || !q.wanted[name] {
			continue
		}
		if _, twice := q.found(name); twice {
			continue
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			continue
		}
		q.add(name, value)
		if q.n+len(q.many) >= len(q.wanted) {
			return
		}
	}
}

// found returns the value of a parameter, if it has been found.
func (q *queryString) found(name string) (string, bool) {
	for i := range q.n {
		if q.few[i].Key == name {
			return q.few[i].Value, true
		}
	}
	v, ok := q.many[name]
	return v, ok
}

// add keeps a parameter that has not been found before.
func (q *queryString) add(name, value string) {
	if q.n < fewParams {
		q.few[q.n] = Entry{name, value}
		q.n++
		return
	}
	if q.many == nil {
		q.many = make(map[string]string, fewParams)
	}
	q.many[name] = value
}
