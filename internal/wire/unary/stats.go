package unary

import "sync/atomic"

// Stats counts what a server has done since it was made.
type Stats struct {
	Connections    int              // open now
	Accepted       uint64           // connections
	Refused        uint64           // connections above MaxConnections
	Displaced      uint64           // idle connections that were closed because others needed their place
	Answered       uint64           // calls with a reply
	Failed         uint64           // calls with an error, of the handler's or of ours
	Codes          [numCodes]uint64 // all of these by code, that of others under 2, UNKNOWN
	Cancelled      uint64           // calls that the client gave up
	RefusedStreams uint64           // calls above MaxConcurrentStreams, or without memory for them
	Shed           uint64           // calls above QueueLimit; they also count as failed or answered
	ProtocolErrors uint64           // connections ended with an error of the client's
	Floods         uint64           // of these, for too many useless frames
	Foreign        uint64           // connections ended because the client does not speak HTTP/2
	Timeouts       uint64           // connections and calls ended because the client was too slow
	Buffered       int64            // bytes of requests in memory, but for the first 2 KiB of each
	Memory         int64            // bytes of the pool that are used, by other holders too
}

// counters are what a server counts. Every step of every connection writes answered,
// so nothing else is on its cache line.
type counters struct {
	_        [64]byte
	answered atomic.Uint64
	_        [64]byte

	accepted, refusedConns, displaced, failed, cancelled, refusedCalls, shed atomic.Uint64
	protocolErrors, floods, timeouts, foreign                                atomic.Uint64
	failures                                                                 [numCodes]atomic.Uint64 // by code
}

// callCounts are the counts of a connection that the server does not know of yet.
type callCounts struct {
	answered, failed, cancelled, refused int
}

// add adds what a connection has counted, and sets it to zero.
func (c *counters) add(n *callCounts) {
	add := func(total *atomic.Uint64, n int) {
		if n > 0 {
			total.Add(uint64(n))
		}
	}
	add(&c.answered, n.answered)
	add(&c.failed, n.failed)
	add(&c.cancelled, n.cancelled)
	add(&c.refusedCalls, n.refused)
	*n = callCounts{}
}

// stats returns the counts, without those of connections and memory.
func (c *counters) stats() Stats {
	codes := [numCodes]uint64{OK: c.answered.Load()}
	for code := range c.failures {
		codes[code] += c.failures[code].Load()
	}
	return Stats{
		Codes: codes, Accepted: c.accepted.Load(), Refused: c.refusedConns.Load(), Displaced: c.displaced.Load(),
		Answered: c.answered.Load(), Failed: c.failed.Load(), Cancelled: c.cancelled.Load(),
		RefusedStreams: c.refusedCalls.Load(), Shed: c.shed.Load(),
		ProtocolErrors: c.protocolErrors.Load(), Floods: c.floods.Load(), Timeouts: c.timeouts.Load(),
		Foreign: c.foreign.Load(),
	}
}
