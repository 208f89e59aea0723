package headgate

import (
	"errors"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Errors of a [Limiter], by errors.Is.
var (
	// ErrClosed: the limiter is closed.
	ErrClosed = errors.New("headgate: the limiter is closed")
	// ErrInvalid: the call cannot be decided as it is, such as one without descriptors.
	// Nothing is charged.
	ErrInvalid = errors.New("headgate: invalid call")
	// ErrUnavailable: the store failed, and the rule's policy is to return an error.
	ErrUnavailable = errors.New("headgate: unavailable")
)

// An Entry is a key with its value.
type Entry = descriptors.Entry

// A Header is a header of a response.
type Header = descriptors.Header

// A Descriptor says what a request is about. A rule matches its entries in their order. Keys are
// UTF-8. Bytes of values that are not UTF-8 count as U+FFFD.
type Descriptor struct {
	Entries []Entry
	// Cost is how many units the request takes: one if zero. To take none, call
	// [Limiter.Peek].
	Cost uint64
}

// Describe returns a descriptor of keys and values in turn. A last key without a value has
// an empty one.
func Describe(keysAndValues ...string) Descriptor {
	d := Descriptor{Entries: make([]Entry, 0, (len(keysAndValues)+1)/2)}
	for i := 0; i < len(keysAndValues); i += 2 {
		e := Entry{Key: keysAndValues[i]}
		if i+1 < len(keysAndValues) {
			e.Value = keysAndValues[i+1]
		}
		d.Entries = append(d.Entries, e)
	}
	return d
}

// A Decision says whether a request may pass.
type Decision struct {
	// Allowed: the request may pass. A refused request costs nothing, unless a rule says
	// otherwise.
	Allowed bool
	// Degraded: the store failed, and a policy has decided.
	Degraded bool

	// The next fields are about one limit: the one that refused, else the one with the
	// least left. They are zero if no limit applies.

	// Rule says where the limit is: "domain/path" or "domain/path:name".
	Rule string
	// Name is the limit's own name, possibly empty.
	Name string
	// Max is how many units are left of it while it is unused: per Window, or what a token bucket holds, in the time
	// in which it refills. Window is 0 for limits on requests in flight.
	Max    int64
	Window time.Duration
	// Remaining is how many units are left, and Reset after how long the limit is as good
	// as unused, in whole seconds.
	Remaining int64
	Reset     time.Duration

	// Chosen is, by the name that rules have in `choose`, the last value of the descriptor that is charged; nil if no
	// rule chooses, or the request is refused.
	Chosen map[string]string

	// Near is where the first limit is that has been used as far as its warn_at; empty if none has.
	Near string

	// Delay is how long the request should wait before it passes, or before it gets
	// the refusal: a tier of a limit on requests in flight says so.
	Delay time.Duration

	// The next fields are about a refusal.

	// RetryAfter is how long to wait. Zero: no wait helps.
	RetryAfter time.Duration
	// Tier is the name or the threshold of the tier that refused.
	Tier string
	// Status, Headers and Body are the rule's own response: zero, nil and "" if it has
	// none.
	Status  int
	Headers []Header
	Body    string
}

// IETF returns the fields RateLimit-Policy and RateLimit as
// draft-ietf-httpapi-ratelimit-headers-10 has them.
func (d *Decision) IETF() (policy, state string) {
	return ratelimit.IETFFields(d.Name, d.Max, d.Window, d.Remaining, int64(d.Reset/time.Second))
}

// fill makes a decision of an answer. It keeps nothing of the answer's memory.
func (d *Decision) fill(r *ratelimit.Response) {
	in := &r.Inside
	*d = Decision{
		Allowed: !r.OverLimit, Degraded: r.Degraded, Rule: in.Rule, Name: in.Name,
		Remaining: in.Remaining, Reset: time.Duration(in.Reset) * time.Second, Delay: in.Delay,
		Chosen: in.Chosen, Near: in.Near,
	}
	if l := in.Limit; l != nil {
		d.Max, d.Window = l.Quota()
		if l.Is(limit.Leased) {
			d.Window = 0
		}
	}
	if d.Allowed {
		return
	}
	if in.Wait != limit.Never {
		d.RetryAfter = in.Wait
	}
	if t := in.Tier; t != nil {
		d.Tier, d.Status, d.Delay = in.TierName, t.Status, t.Delay
	}
	d.Headers, d.Body = slices.Clone(r.Headers), r.Body
}
