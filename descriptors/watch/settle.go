package watch

import (
	"time"

	"github.com/headgate-rls/headgate/descriptors"
)

// settling is the wait of rules that take limits away until the files are quiet. Whoever rewrites a file in place
// shows it without its last rules for a moment.
type settling struct {
	print  fingerprint // of the rules that wait; zero if none do
	since  time.Time   // the last change of a file
	logged time.Time
}

func (s *settling) waits() bool { return s.print != fingerprint{} }

// logSettlingEvery is how often the log says that files do not become quiet.
const logSettlingEvery = time.Minute

// unsettled reports whether rules must wait, because they take limits away and the files have not been quiet for
// long enough.
func (w *Watcher) unsettled(set *descriptors.Set, print fingerprint) bool {
	now := time.Now()
	s := &w.settle
	diff := set.Compare(w.set)
	if diff.TakenAway() == 0 || w.opt.Settle < 0 || w.set == nil || s.print == print && now.Sub(s.since) >= w.opt.Settle {
		*s = settling{logged: s.logged}
		return false
	}
	if s.print != print {
		s.print, s.since = print, now
	}
	if now.Sub(s.logged) >= logSettlingEvery {
		s.logged = now
		w.opt.Log.Warn("the new rules take limits away: the old rules stay in force until the files have been quiet",
			"quiet_for", w.opt.Settle, "limits", diff.TakenAway(), "changes", diff.Lines(5))
	}
	return true
}
