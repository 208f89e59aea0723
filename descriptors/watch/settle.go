package watch

import (
	"crypto/sha256"
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
)

// fingerprint identifies the content of all files, or why they cannot be read.
type fingerprint [sha256.Size]byte

// settling is the wait of rules that take limits away until the files are quiet. Whoever rewrites a file in place
// shows it without its last rules for a moment.
type settling struct {
	print  fingerprint          // of the rules that wait; zero if none do
	since  time.Time            // the last change of a file
	away   map[string]time.Time // limits that are missing in each reading since then
	logged time.Time
}

func (s *settling) waits() bool { return s.print != fingerprint{} }

// end ends the wait: the rules are put in force, or match those in force again.
func (s *settling) end() { s.print, s.away = fingerprint{}, nil }

// maxSettles bounds the wait, as a multiple of the time that files must be quiet. A limit that is missing in every
// reading for so long is removed, even if other files change all the time.
const maxSettles = 10

// lacks notes which limits a diff takes away, and reports whether some were still there a short time ago.
func (s *settling) lacks(d *descriptors.Diff, now time.Time, long time.Duration) (some bool) {
	before := s.away
	s.away = map[string]time.Time{}
	for i := range d.Limits {
		if c := &d.Limits[i]; c.TakenAway {
			since, known := before[c.Limit]
			if !known {
				since = now
			}
			s.away[c.Limit] = since
			some = some || now.Sub(since) < long
		}
	}
	return some
}

// logSettlingEvery is how often the log says that files do not become quiet.
const logSettlingEvery = time.Minute

// holds reports whether the rules with a fingerprint must wait, because they take limits of old away and the files have
// not been quiet for long enough.
func (s *settling) holds(set, old *descriptors.Set, print fingerprint, quiet time.Duration, log *slog.Logger) bool {
	now := time.Now()
	if quiet < 0 || old == nil || s.print == print && now.Sub(s.since) >= quiet {
		s.end()
		return false
	}
	diff := set.Compare(old)
	if !s.lacks(diff, now, maxSettles*quiet) {
		s.end()
		return false
	}
	if s.print != print {
		s.print, s.since = print, now
	}
	if now.Sub(s.logged) >= logSettlingEvery {
		s.logged = now
		log.Warn("the new rules take limits away: the old rules stay in force until the files have been quiet",
			"quiet_for", quiet, "at_most", maxSettles*quiet, "limits", diff.TakenAway(), "changes", diff.Lines(5))
	}
	return true
}
