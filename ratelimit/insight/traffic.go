package insight

import (
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Traffic counts the calls that a process answers. It may be used concurrently.
type Traffic struct {
	// Answers counts all calls that were decided, Refused those that were refused, and ByPolicy those that a failure
	// policy answered. Unmatched met no rule.
	Answers, Refused, ByPolicy, Unmatched metrics.Counter

	seen ratelimit.Shape // its time only
}

// Last returns when the last call was seen, to the second; the zero time if none was.
func (t *Traffic) Last() time.Time { return t.seen.Last() }

// see counts an answer.
func (t *Traffic) see(b *ratelimit.Batch, c *ratelimit.Call) {
	if len(c.Decisions) == 0 {
		return // nothing was asked that can be decided
	}
	t.seen.Seen(b.Instant())
	b.Count(&t.Answers)
	if c.Response.OverLimit {
		b.Count(&t.Refused)
	}
	if c.MeetsNoRule() {
		b.Count(&t.Unmatched)
	}
	if c.Response.Degraded {
		b.Count(&t.ByPolicy)
	}
}
