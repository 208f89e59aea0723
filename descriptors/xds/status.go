package xds

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Status says what a client knows of the control plane and of its rules. It is not
// changed any more.
type Status struct {
	// Connected: there is a stream, and the control plane has answered on it.
	Connected bool
	// Error says why there is no stream; empty: there is one, or it was not tried yet.
	Error string
	// Version is the last one that was acknowledged; it starts anew with the control
	// plane.
	Version string
	// Rules says that rules are in force; Cached that the control plane has not
	// confirmed them since the start, and that they come from the file.
	Rules, Cached bool
	// Changed is when the rules in force last changed, and Answered when the control
	// plane last sent any; zero: never.
	Changed, Answered time.Time
	// Accepted counts responses that are in force as a whole, Refused those of which a
	// part is not, and Failures connections that failed or ended.
	Accepted, Refused, Failures int64
	// Domains is how many are in force.
	Domains int
	// Kept are domains in force that the control plane has not sent on this connection.
	Kept []string
	// Rejected are domains whose last version cannot be used, and whether an earlier one
	// is in force.
	Rejected map[string]bool
	// Problems say why, at most 20 of them; Wrong is how many there are.
	Problems []string
	Wrong    int
}

// mostShown bounds lists that people read.
const mostShown = 20

// Describe writes the status as lines that begin with #.
func (s *Status) Describe(w io.Writer, now time.Time) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString("# " + strings.NewReplacer("\n", " ", "\r", " ").Replace(fmt.Sprintf(format, args...)) + "\n")
	}
	from := "xds"
	if s.Cached {
		from = "xds (from the cache file; the control plane has not confirmed them)"
	}
	line("source: %s", from)
	switch {
	case s.Connected:
		line("connected: yes")
	case s.Error != "":
		line("connected: no: %s", s.Error)
	default:
		line("connected: no answer yet")
	}
	if !s.Rules {
		line("rules: none yet")
	} else {
		line("version: %q, domains: %d, changed: %s, answered: %s", s.Version, s.Domains, age(now, s.Changed),
			age(now, s.Answered))
	}
	for _, name := range shown(slices.Sorted(maps.Keys(s.Rejected))) {
		line("rejected: %q, %s", name, map[bool]string{true: "as it was before", false: "not limited"}[s.Rejected[name]])
	}
	for _, name := range shown(s.Kept) {
		line("kept although not sent: %q", name)
	}
	for _, p := range s.Problems {
		line("problem: %s", p)
	}
	if more := s.Wrong - len(s.Problems); more > 0 {
		line("and %d more problems", more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func age(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return fmt.Sprintf("%s (%s ago)", then.UTC().Format(time.RFC3339), now.Sub(then).Round(time.Second))
}
