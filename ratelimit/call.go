package ratelimit

import (
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A batch is the requests of one Decide, and the memory for them. Batches are
// pooled.
type batch struct {
	engine *engine
	rules  *ruleset
	// policies are those in force, for all calls of the batch.
	policies *policies.Snapshot

	calls    []call
	takes    []limit.Request
	returns  bool // some call has leases that came back
	verdicts []limit.Verdict
	asked    time.Time // when the backend was asked, zero for one without I/O
	tally    tally
	byPolicy policyTallies
	times    times // of a service with a tracer
}

// A call is one request on its way to its response.
type call struct {
	req       *Request
	resp      *Response
	parts     []part       // one per descriptor
	ops       []limit.Op   // of all parts, in order
	views     []*limitView // of ops
	cause     *cause       // why policies answer, nil if they do not
	takeIndex int          // index into batch.takes, -1 if there are no ops

	failure *Error // fails the call by policy, else nil

	// Requests in flight.
	holder      string          // of the leases that the call gets
	lease       leases.Lease    // that the call gets
	tokens      []byte          // encoded metadata with its token
	returns     []leases.Return // leases that came back with the call
	firstReturn int             // index into batch.takes of the first of returns that has ops
}

// A part is what the rules say about one descriptor.
type part struct {
	view      *ruleView // nil if no rule applies
	match     descriptors.Match
	unlimited bool
	first, n  int // its ops in call.ops

	// policy answers instead of the counters, unless it is zero.
	policy  descriptors.FailurePolicy
	returns bool // a lease came back with it

	policies *policyViews // of the rule, nil if it has none
	decider  int          // which of its policies decides, as policyViews.view says
}

// A refusal is the limit that refuses a request, if one does.
type refusal struct {
	part int
	view *limitView
	tier *tierView     // of a limit on requests in flight
	wait time.Duration // limit.Never if no wait helps
}

// outweighs reports whether a refusal with this wait replaces r: if r is empty or
// its wait is shorter.
func (r *refusal) outweighs(wait time.Duration) bool {
	return r.view == nil || (r.wait != limit.Never && (wait == limit.Never || wait > r.wait))
}

// grow returns s with length n, keeping the elements' memory.
func grow[T any](s []T, n int) []T {
	if n > cap(s) {
		s = append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}

// Pools keep little of messages larger than smallMessage, in bytes: none of their
// strings, and the memory of only the first keptLarge requests of a slice.
const (
	smallMessage = 2 << 10
	keptLarge    = 32
)
