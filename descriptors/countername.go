package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/limit"
)

// Name returns what people call the counters of a descriptor: the domain and the entries with |
// between them, each as key=value, or key alone without a value. Bytes that would be mistaken for
// those, spaces, and all that is no visible ASCII are written %XX.
func Name(domain string, entries []Entry) string {
	b := appendName(nil, domain, "")
	for _, e := range entries {
		b = appendName(append(b, '|'), e.Key, "=")
		if e.Value != "" {
			b = appendName(append(b, '='), e.Value, "")
		}
	}
	return string(b)
}

func appendName(b []byte, text, special string) []byte {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || c == '|' || c == '%' || special != "" && c == special[0] {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return b
}

// HashedName is what a name is called where values of requests must not be seen: sha256: and the first 16 digits of
// its SHA-256.
func HashedName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return HashPrefix + hex.EncodeToString(sum[:8])
}

// HashPrefix is what a HashedName begins with.
const HashPrefix = "sha256:"

// Counted returns a descriptor that is counted under a group. matches says whether one of the rules
// does so; if not, the descriptor is that of a rule that there was once, or of a request with a
// limit of its own. ok is false for groups that do not show it: hashes, and names that operators chose.
func (s *Set) Counted(group string) (domain string, entries []Entry, matches, ok bool) {
	parts := SplitGroup(limit.Encoding(group))
	switch {
	case len(parts) > 0 && len(parts)%2 == 0: // a resource
		resource, found := strings.CutPrefix(parts[1], "counter:")
		if !found {
			return "", nil, false, false
		}
		entries = requestOf(resource, parts[2:])
	case len(parts) > 2 && len(parts)%2 == 1:
		for i := 1; i < len(parts); i += 2 {
			entries = append(entries, Entry{Key: parts[i], Value: parts[i+1]})
		}
	default:
		return "", nil, false, false
	}
	var m Match
	s.Match(parts[0], entries, &m)
	return parts[0], entries, m.Rule != nil && m.Group == group, true
}

// escaped escapes what would end a segment of a path, or a parameter of a query.
var escaped = strings.NewReplacer("%", "%25", "/", "%2F", "?", "%3F", "#", "%23", "&", "%26", "=", "%3D", "+", "%2B",
	";", "%3B")

// requestOf returns the descriptor of a request to a resource that is counted by values: pairs of a name and a value.
func requestOf(key string, by []string) []Entry {
	method, path, _ := strings.Cut(key, ":")
	entries := []Entry{{Key: methodEntry, Value: method}, {Key: pathEntry, Value: path}}
	query := "?"
	for i := 0; i < len(by); i += 2 {
		name, value := by[i], by[i+1]
		if param, found := strings.CutPrefix(name, pathValue); found {
			path = strings.Replace(path, "/{"+param+"}", "/"+escaped.Replace(value), 1)
		} else if param, found := strings.CutPrefix(name, queryValue); found {
			path += query + escaped.Replace(param) + "=" + escaped.Replace(value)
			query = "&"
		} else {
			entries = append(entries, Entry{Key: name, Value: value})
		}
	}
	entries[1].Value = path
	return entries
}

// SplitGroup returns the parts that [limit.AppendPart] has made a text of; nil if it was made otherwise.
func SplitGroup(group string) (parts []string) {
	for group != "" {
		length, rest, ok := strings.Cut(group, ":")
		n, err := strconv.Atoi(length)
		if !ok || err != nil || n < 0 || n > len(rest) || len(parts) > limit.MaxGroupLen {
			return nil
		}
		parts, group = append(parts, rest[:n]), rest[n:]
	}
	return parts
}
