package descriptors

import (
	"bytes"
	"net/url"
	"strings"
)

// maxTarget is how much of a request's path and query is looked at. What is
// beyond is as if it were not there, so a long tail hides no request from the
// rule for how its path begins.
const maxTarget = 8 << 10

// splitTarget cuts what Envoy calls :path into path and query.
func splitTarget(target string) (path, query string) {
	if len(target) > maxTarget {
		target = target[:maxTarget]
	}
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
//   - a slash at the end is dropped.
//
// A path that does not start with a slash is left as it is.
func normalPath(path string) string {
	if path == "" || path[0] != '/' || isNormalPath(path) {
		return path
	}
	out := make([]byte, 0, len(path)+16)
	for rest := path; rest != ""; {
		var segment string
		segment, rest = cutSegment(rest)
		out = appendSegment(out, segment)
	}
	if len(out) == 0 {
		return "/"
	}
	return string(out)
}

// isNormalPath says whether path, which starts with a slash, is surely in its
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
// net/url does: what is not valid there is not a parameter.
type queryString struct {
	raw  string
	read bool
	few  [fewParams]Entry
	n    int
	many map[string]string // of queries with more
}

const fewParams = 8

func (q *queryString) get(name string) (string, bool) {
	if !q.read {
		q.read = true
		q.parse()
	}
	if q.many != nil {
		v, ok := q.many[name]
		return v, ok
	}
	for i := range q.n {
		if q.few[i].Key == name {
			return q.few[i].Value, true
		}
	}
	return "", false
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
		if err != nil {
			continue
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			continue
		}
		q.add(name, value)
	}
}

func (q *queryString) add(name, value string) {
	if q.many == nil && q.n < fewParams {
		q.few[q.n] = Entry{name, value}
		q.n++
		return
	}
	if q.many == nil {
		q.many = make(map[string]string, 4*fewParams)
		for i := fewParams - 1; i >= 0; i-- { // the first of a name stays
			q.many[q.few[i].Key] = q.few[i].Value
		}
	}
	if _, ok := q.many[name]; !ok {
		q.many[name] = value
	}
}
