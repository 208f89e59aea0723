package ratelimit

import (
	"slices"

	"github.com/headgate-rls/headgate/limit"
)

// A Tap sees what is asked, and what was answered. It is called before the answer leaves: it must not block, and must
// copy what it keeps. Its methods may be called concurrently.
type Tap interface {
	// Active reports whether the tap wants to see anything now.
	Active() bool
	// See sees a request that was decided.
	See(*Asked)
	// Ended reports that the request with a lease of this name has ended, and its cost if it had reservations and is
	// settled. The first call counts; there may be more. A lease that expires gets no call.
	Ended(holder string, how ReservationEnd, cost int64)
	// Renewed reports that the request with a lease of this name is still in flight: it expires later.
	Renewed(holder string)
}

// An Asked is a request and its answer, for a [Tap].
type Asked struct {
	Request *Request
	At      limit.Instant
	Refused bool
	Rule    string // of the limit that refused, else the closest: "domain/path:name"; empty if none counted
	// Degraded: a failure policy answered, not the counters.
	Degraded bool
	Holder   string // names the lease that the request got, if its end is reported; else empty
	Estimate int64  // units that the request may cost, as its caller says; 0 if it does not
}

// Asks reports whether descriptor i asks for something. Others give a lease back.
func (a *Asked) Asks(i int) bool {
	entries := a.Request.Descriptors[i].Entries
	return len(entries) == 0 || entries[0].Key != OpKey
}

// First returns the number of the first descriptor that asks for something, -1 if none does.
func (a *Asked) First() int {
	for i := range a.Request.Descriptors {
		if a.Asks(i) {
			return i
		}
	}
	return -1
}

// returned reports to the taps that a lease was renewed or has ended.
func (c *Config) returned(holder string, renewed bool) {
	if !renewed {
		c.ended(holder, Unsettled, 0)
		return
	}
	for _, tap := range c.Taps {
		tap.Renewed(holder)
	}
}

// ended reports to the taps that a request with a lease has ended.
func (c *Config) ended(holder string, how ReservationEnd, cost int64) {
	for _, tap := range c.Taps {
		tap.Ended(holder, how, cost)
	}
}

// showTaps shows a call that was decided to the taps.
func showTaps(b *Batch, c *Call) {
	if c.Response.Err != nil || len(c.Decisions) == 0 || !slices.ContainsFunc(b.engine.conf.Taps, Tap.Active) {
		return
	}
	asked := Asked{Request: c.Request, At: limit.Instant(b.Instant()), Refused: c.Response.OverLimit,
		Degraded: c.Response.Degraded, Estimate: c.estimate}
	if d := c.closest(); d != nil && d.Limit != nil {
		asked.Rule = d.Limit.Name
	}
	if len(c.Response.granted) > 0 && len(c.lease.Held)+len(c.lease.Reserved) > 0 { // the end of others is not reported
		asked.Holder = c.holder
	}
	for _, tap := range b.engine.conf.Taps {
		tap.See(&asked)
	}
}
