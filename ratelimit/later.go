package ratelimit

import (
	"errors"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
)

// During a rollout over a change of formats, and after a rollback, this version may meet counters that a later version
// has written in a format that it cannot read. What is under such a counter is not known, and will not be after any
// retry. So the requests are refused, whatever their rules say of failures, unless Config.LaterByRule is set.

// laterFormat is the cause of such answers. Its policy is that of [engine.onLater].
var laterFormat = &Cause{
	Label: "later_format", message: "a later version has written the counter, answered by policy ",
	outcomes: backendFailed.outcomes, note: backendFailed.note,
}

// onLater returns the policy of a rule whose counter a later version has written.
func (e *engine) onLater(v *ruleView) descriptors.FailurePolicy {
	if e.conf.LaterByRule {
		return v.onError
	}
	return descriptors.FailDeny
}

// A laterNote remembers when a counter of a later format was met, and logs that now and then.
type laterNote struct {
	mu      sync.Mutex
	met     time.Time // last
	logged  time.Time // last
	skipped int64     // since then
}

// laterEvery is how often the log has that counters of a later format are met.
const laterEvery = 10 * time.Minute

// remedyLater is what an operator can do about them.
const remedyLater = "run the version that has written them, or a later one (docs/versions.md); --on-later-format " +
	"on_backend_error has the rules decide, which may let requests pass uncounted"

// meet notes that one was met, and reports whether to log that, and how many were not logged since the last time.
func (n *laterNote) meet(now time.Time) (log bool, skipped int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.met = now
	if !n.logged.IsZero() && now.Sub(n.logged) < laterEvery {
		n.skipped++
		return false, 0
	}
	skipped, n.logged, n.skipped = n.skipped, now, 0
	return true, skipped
}

// noteLater notes that what was to be done failed for req by a counter of a later format. It reports whether it did.
func (e *engine) noteLater(req *Request, what string, err error) bool {
	if !errors.Is(err, backends.ErrLater) {
		return false
	}
	if ok, skipped := e.later.meet(time.Now()); ok {
		e.conf.Log.Error("counters have a format of a later version of headgate", "reason", what, "remedy", remedyLater,
			"domain", req.Domain, "error", err, "request_id", req.RequestID, "trace_id", traceID(req), "suppressed", skipped)
	}
	return true
}

// MetLater returns when a request has last met a counter that a later version of headgate has written in a format that
// this one cannot read: zero if none has.
func (s *Service) MetLater() time.Time {
	s.later.mu.Lock()
	defer s.later.mu.Unlock()
	return s.later.met
}
