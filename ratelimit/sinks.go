package ratelimit

import "github.com/headgate-rls/headgate/descriptors"

// A Sink reads the decisions of calls when they are complete. It must not change them. See is called once for each
// call, by several goroutines at once, and must not keep its arguments. A call that failed before anything was decided
// has no decisions.
type Sink interface{ See(*Batch, *Call) }

// Rules returns the rules by which the calls are decided.
func (b *Batch) Rules() *descriptors.Set { return b.rules.set }

// A RulesSink is a [Sink] that hears which rules are in force.
type RulesSink interface {
	Sink
	RulesLoaded(set *descriptors.Set)
}

// A sink is a reader in this package: it writes a part of the response, counts, a line of the log, or a span.
type sink struct {
	// wanted reports whether a service has the sink; nil: every one has.
	wanted func(*Config) bool
	// see is as in Sink.
	see func(*Batch, *Call)
}

// sinks are what reads decisions, in this order. To add a fact, write it into [Decision] and have
// a sink read it; to add a reader, add a row.
var sinks = []sink{
	{see: tellInside},
	{see: addHeaders, wanted: served},
	{see: addMetadata, wanted: func(c *Config) bool { return served(c) && c.Encoder != unsent{} }},
	{see: tellNear, wanted: served},
	{see: countDecisions, wanted: served},
	{see: countByPolicy, wanted: func(c *Config) bool { return c.Policies != nil }},
	{see: coverDescriptors, wanted: served},
	{see: warnOfUnknownDomain, wanted: served},
	{see: logRefusal, wanted: served},
	{see: showTaps, wanted: func(c *Config) bool { return len(c.Taps) > 0 }},
	{see: traceCall, wanted: func(c *Config) bool { return c.Tracer != nil }},
}

// served reports whether the answers are given to somebody.
func served(c *Config) bool { return !c.Dry }

// readers are the functions of the sinks that a service has.
type readers []func(*Batch, *Call)

// readersFor returns the functions of the sinks that a service with this Config has: those above, and its own.
func readersFor(conf *Config) (r readers) {
	for _, s := range sinks {
		if s.wanted == nil || s.wanted(conf) {
			r = append(r, s.see)
		}
	}
	for _, s := range conf.Sinks {
		r = append(r, s.See)
	}
	return r
}

// read calls the sinks for each call of a slice, and then writes the counts.
func (r readers) read(b *Batch) {
	for i := range b.calls {
		c := &b.calls[i]
		for _, see := range r {
			see(b, c)
		}
	}
	b.tally.flush()
	b.byPolicy.flush()
}
