package policies

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A Template makes the keys of requests from the values of their entries: parts with | between
// them, each of which has at most one {entry}.
type Template struct {
	text    string
	entries []string // their keys, by number
	parts   []part
}

// A part is a text around the value of an entry.
type part struct {
	before, after string
	value         int // number of the entry, -1: the part has no value
}

// MaxTemplate bounds templates, in bytes.
const MaxTemplate = MaxKey

// ParseTemplate reads a template such as "user:{user}|route:{route}". entries are the keys that a
// value may be taken from, by number.
func ParseTemplate(text string, entries []string) (*Template, error) {
	switch {
	case text == "":
		return nil, errors.New("policy is empty; leave it out to use the rule's own limit")
	case len(text) > MaxTemplate:
		return nil, fmt.Errorf("policy has %d bytes, more than %d", len(text), MaxTemplate)
	}
	t := &Template{text: text, entries: entries}
	for _, p := range strings.Split(text, "|") {
		made, err := parsePart(p, entries)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, made)
	}
	return t, nil
}

func parsePart(text string, entries []string) (part, error) {
	if text == "" {
		return part{}, errors.New("policy has an empty part: | stands between two parts")
	}
	p := part{before: text, value: -1}
	if before, rest, ok := strings.Cut(text, "{"); ok {
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return part{}, fmt.Errorf("policy has a { without } in %q", text)
		}
		switch n := slices.Index(entries, name); {
		case n < 0:
			return part{}, fmt.Errorf("policy names the entry {%s}, which the rule has not; it has %s", name, braced(entries))
		case slices.Contains(entries[n+1:], name):
			return part{}, fmt.Errorf("policy names the entry {%s}, which the rule has twice", name)
		default:
			p = part{before, after, n}
		}
	}
	for _, s := range []string{p.before, p.after} {
		if i := strings.IndexFunc(s, func(r rune) bool { return r > 255 || !plain[byte(r)] }); i >= 0 {
			return part{}, fmt.Errorf("policy has %q in %q: between values there may be letters, digits and -._~/:@!$&'()+,;=,"+
				" and one {entry} in each part", []rune(s[i:])[0], text)
		}
	}
	return p, nil
}

func braced(names []string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = "{" + n + "}"
	}
	return strings.Join(all, ", ")
}

// String returns the template as it was written.
func (t *Template) String() string { return t.text }

// Append appends the key for the values of a request's entries to dst, which must be empty.
// value returns the value of an entry.
func (t *Template) Append(dst []byte, value func(i int) string) []byte {
	for i := range t.parts {
		if i > 0 {
			dst = append(dst, '|')
		}
		p := &t.parts[i]
		dst = append(dst, p.before...)
		if p.value >= 0 {
			dst = appendEscaped(dst, value(p.value))
		}
		dst = append(dst, p.after...)
	}
	return bounded(dst)
}

// Makes reports whether the template makes a key for some values. For a key that ends in a hash nobody knows: it is
// reported as true.
func (t *Template) Makes(key string) bool {
	if strings.Contains(key, "#") {
		return true
	}
	return slices.EqualFunc(t.parts, strings.Split(key, "|"), func(p part, text string) bool { return p.makes(text) })
}

// Entries returns the entries of the requests for which the template makes a key: keys and values, by number. It
// reports false if the key lacks a value, or if the template does not make such a key.
func (t *Template) Entries(key string) (list [][2]string, ok bool) {
	if strings.Contains(key, "#") || !t.Makes(key) {
		return nil, false
	}
	list = make([][2]string, len(t.entries))
	known := 0
	for i, text := range strings.Split(key, "|") {
		p := &t.parts[i]
		if p.value < 0 {
			continue
		}
		value, err := url.PathUnescape(text[len(p.before) : len(text)-len(p.after)])
		if err != nil || list[p.value][0] != "" && list[p.value][1] != value {
			return nil, false
		}
		if list[p.value][0] == "" {
			known++
		}
		list[p.value] = [2]string{t.entries[p.value], value}
	}
	return list, known == len(list)
}

func (p *part) makes(text string) bool {
	if p.value < 0 {
		return text == p.before
	}
	return len(text) >= len(p.before)+len(p.after) && strings.HasPrefix(text, p.before) && strings.HasSuffix(text, p.after)
}
