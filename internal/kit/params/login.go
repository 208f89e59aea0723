package params

import (
	"errors"
	"slices"
	"strings"
)

var errUnescaped = errors.New("a / or ? in the user name or password must be written %2F or %3F")

// CheckLogin refuses a URL whose user name or password has characters that end it, as in redis://:pa/ss@host: a part of
// a password would be taken for a host, a path or a parameter, and errors quote those. The error quotes nothing.
// The named parameters may hold an @. If a path may, too, the URL is that of a file.
func CheckLogin(rawURL string, path PathMay, parameters ...string) error {
	_, rest, _ := strings.Cut(rawURL, "://")
	rest, query, _ := strings.Cut(rest, "?")
	authority, behind, _ := strings.Cut(rest, "/")
	ended := authority == "" || strings.HasSuffix(authority, "@")
	if strings.Contains(behind, "@") && !(path == HoldAt && ended) {
		return errUnescaped
	}
	for parameter := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(parameter, "=")
		if strings.Contains(parameter, "@") && !slices.Contains(parameters, name) {
			return errUnescaped
		}
	}
	return nil
}

// PathMay says whether the path of a URL may hold an @.
type PathMay bool

// What a path may.
const (
	HoldAt   PathMay = true
	HoldNoAt PathMay = false
)
