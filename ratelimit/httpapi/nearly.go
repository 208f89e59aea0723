package httpapi

import (
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// Bounds of nearly.
const (
	maxNearly   = 5
	maxCompared = 10_000 // rules
)

// nearly returns rules of a domain that a descriptor does not match, but would if one entry were another, or one more
// or one less: at most five, in the order of the files.
func nearly(s *descriptors.Set, domain string, entries []descriptors.Entry) (list []*descriptors.Rule) {
	var m descriptors.Match
	s.Match(domain, entries, &m)
	looked := 0
	for _, r := range s.Rules() {
		if r.Domain != domain || r.Resource != "" || r == m.Rule {
			continue
		}
		if looked++; looked > maxCompared || len(list) == maxNearly {
			break
		}
		if differsInOne(r, entries) {
			list = append(list, r)
		}
	}
	return list
}

// differsInOne reports whether one entry of a descriptor is another than r asks for, missing, or too many at the end.
// Of one entry alone, the key must be similar: else all rules of one entry would do.
func differsInOne(r *descriptors.Rule, entries []descriptors.Entry) bool {
	if !differ(r.Path, entries, 1) {
		return false
	}
	if len(entries) > 1 || strings.HasPrefix(r.Path, entries[0].Key) {
		return true
	}
	path := []string{r.Path}
	return spell.Similar(entries[0].Key, path) != "" || spell.Similar(entries[0].Key+"_"+entries[0].Value, path) != ""
}

// differ reports whether so many entries are others than a rule's path has, which is 0 or 1.
func differ(path string, entries []descriptors.Entry, n int) bool {
	if path == "" || len(entries) == 0 {
		return path == "" && len(entries) == n || n == 1 && len(entries) == 0 && !strings.Contains(path, ".")
	}
	key := entries[0].Key
	for _, same := range []string{key + "_" + entries[0].Value, key} {
		rest, ok := strings.CutPrefix(path, same)
		if ok && (rest == "" || rest[0] == '.') && differ(strings.TrimPrefix(rest, "."), entries[1:], n) {
			return true
		}
	}
	for rest := path; n == 1 && rest != ""; { // values may have dots
		_, rest, _ = strings.Cut(rest, ".")
		if differ(rest, entries[1:], 0) {
			return true
		}
	}
	return false
}
