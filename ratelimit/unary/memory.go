package unary

import (
	"cmp"
	"slices"
	"time"
)

// What a connection keeps in memory for its client is counted: open streams,
// requests, answers that wait, and read buffers. All of it runs under the
// connection's mutex, but for relieve.
//
// Below MaxBuffered everybody gets what they ask for. Above it a connection gets
// no more than its fair share, so that no client can use up what others need,
// and the largest holders lose the requests that they have not completed.

const (
	// streamCost is what an open stream counts, in bytes: itself and the buffers
	// for a request and an answer of ordinary size.
	streamCost = 2*maxKeptBuffer + 1<<10
	// reserve is what each connection is always granted, in bytes.
	reserve = 32 << 10
	// countAfter is how many bytes a connection may be ahead of what the server
	// knows of.
	countAfter = 64 << 10
	// relieveEvery is how often memory is taken back at most.
	relieveEvery = 10 * time.Millisecond
)

var errMemory = &Status{ResourceExhausted, "too many bytes of requests in flight"}

// footprint is what the connection keeps in memory, in bytes.
func (c *conn) footprint() int {
	calls := c.held + c.active*streamCost
	if c.state == stateDead { // the rest goes with the connection
		return calls
	}
	return calls + max(0, c.inboxSize-inboxSmall) + cap(c.fragments) + cap(c.out) + cap(c.spare) + c.inWrite +
		c.pendingBytes + c.receipts.bytes
}

// count tells the server how much memory the connection keeps.
func (c *conn) count() {
	now := int64(c.footprint())
	if d := now - c.counted.Load(); d != 0 {
		c.s.memory.Add(d)
		c.counted.Store(now)
	}
	if d := c.held - c.heldReported; d != 0 {
		c.s.held.Add(int64(d))
		c.heldReported = c.held
	}
}

// room tells whether the connection may keep n more bytes.
func (c *conn) room(n int) bool {
	mine := int64(c.footprint() + n)
	ahead := mine - c.counted.Load()
	if c.s.memory.Load()+ahead <= int64(c.s.conf.MaxBuffered) {
		if ahead > countAfter {
			c.count()
		}
		return true
	}
	select {
	case c.s.full <- struct{}{}:
	default: // it is known already
	}
	return mine <= c.s.fairShare()
}

// hold accounts for n more bytes of a request. What a stream counts covers those
// of an ordinary one, so that a few large requests do not shut out small ones.
func (c *conn) hold(st *stream, n int) *Status {
	st.size += n
	more := max(0, st.size-maxKeptBuffer) - st.held
	if more <= 0 {
		return nil
	}
	if c.held+more > c.s.conf.MaxHeld || !c.room(more) {
		return errMemory
	}
	st.held += more
	c.held += more
	return nil
}

// forgetRequest gives back what a request takes whose answer is there.
func (c *conn) forgetRequest(st *stream) {
	c.held -= st.held
	st.held, st.size = 0, 0
	st.body, st.plain, st.call.Message = kept(st.body), nil, nil
	st.call.Reply = kept(st.call.Reply) // pending has it
}

// fairShare is what each connection may keep when all together keep too much.
func (s *Server) fairShare() int64 {
	return max(reserve, int64(s.conf.MaxBuffered)/max(s.open.Load(), 1))
}

// relieve takes memory back from the connections that keep most of it, until
// there is some room again.
func (s *Server) relieve(conns []*conn) {
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(b.counted.Load(), a.counted.Load()) })
	goal := int64(s.conf.MaxBuffered) / 8 * 7
	for _, c := range conns {
		if s.memory.Load() <= goal || c.counted.Load() <= s.fairShare()/2 {
			return
		}
		c.relieve()
	}
}

// relieve gives up the requests that are not complete. A connection whose answers
// alone are more than its share is closed: its client does not read them.
func (c *conn) relieve() {
	c.mu.Lock()
	for _, st := range c.streams {
		if !st.ended {
			c.refuse(st, errMemory)
		}
	}
	answers := c.pendingBytes + len(c.out) + c.inWrite
	if int64(answers) > c.s.fairShare()/2 {
		c.s.stats.timeouts.Add(1)
		c.kill("its answers wait while memory is short")
	}
	c.report()
	c.mu.Unlock()
	c.flushSoon()
}
