package unary

import "time"

// trimAfter is how long a connection is quiet before it drops its buffers.
const trimAfter = 5 * time.Second

// check ends what has taken too long.
func (c *conn) check(now time.Time) {
	c.checkTimeouts(now)
	c.w.flushLater()
}

func (c *conn) checkTimeouts(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	if reason := c.overdue(); reason != "" {
		c.counters.timeouts.Add(1)
		c.close(reason)
	}
	if c.state == stateHalfClosed && now.After(c.w.closeBy) {
		c.close("")
	}
	if c.state < stateClosing {
		c.streams.check()
		c.answers.recheckWaiting()
		c.checkAge()
		c.endKept()
		c.drain.check()
		c.checkAlive()
	}
	c.streams.sent.prune(now)
	c.streams.count()
}

// overdue returns what the client has not done in time.
func (c *conn) overdue() string {
	conf := &c.conf
	past := func(since time.Time, limit time.Duration) bool { return c.now.Sub(since) > limit }
	switch {
	case c.state == stateClosed || c.state == stateHalfClosed && !c.w.writing:
		return ""
	case c.w.blockedFor() > conf.WriteTimeout:
		return "the client does not read"
	case !c.reading.Load() && c.settled:
		return "" // it is us who are busy
	case !c.settled && past(c.made, conf.ReadTimeout):
		return "no HTTP/2 preface and SETTINGS in time"
	case !c.reader.partialSince.IsZero() && past(c.reader.partialSince, conf.ReadTimeout):
		return "a frame or header block was not completed in time"
	case !c.pingAt.IsZero() && past(c.pingAt, conf.KeepaliveTimeout):
		return "no answer to a keepalive ping"
	case !c.drain.begun.IsZero() && past(c.drain.begun, conf.Grace):
		return "calls were still open when the grace period of the drain ended"
	}
	return ""
}

// checkAge drains a connection that is old or has nothing to do.
func (c *conn) checkAge() {
	switch {
	case c.lifetime > 0 && c.now.Sub(c.made) > c.lifetime,
		c.conf.IdleTimeout > 0 && c.streams.active == 0 && c.now.Sub(c.lastCall) > c.conf.IdleTimeout:
		c.drain.start()
	}
}

// checkAlive pings a client that is quiet, and drops buffers that it does not use.
func (c *conn) checkAlive() {
	if !c.reading.Load() || !c.settled {
		return
	}
	quiet := c.now.Sub(c.lastRead)
	if every := c.conf.KeepaliveInterval; every > 0 && quiet > every && c.pingAt.IsZero() {
		c.pingAt = c.now
		c.w.ping(0, alivePing)
	}
	if quiet > trimAfter {
		c.startTrim()
	}
}

// canTrim reports whether the read loop waits and has a buffer that it does not need.
func (c *conn) canTrim() bool {
	spare := c.streams.readBytes > 0 || c.streams.active == 0 && !c.w.writing && c.w.memory() > 0
	return spare && c.reading.Load() && c.settled && c.reader.partialSince.IsZero()
}

// startTrim wakes the read loop, which waits for the client, to drop its buffers.
func (c *conn) startTrim() {
	if !c.untrimmed || c.trimming {
		return
	}
	c.trimming = true
	if err := c.nc.SetReadDeadline(time.Unix(1, 0)); err != nil {
		c.close("read deadline: " + err.Error())
	}
}

// shutdown begins to drain the connection.
func (c *conn) shutdown() {
	c.mu.Lock()
	c.now = time.Now()
	c.drain.start()
	c.endKept()
	c.mu.Unlock()
	c.w.flushLater()
}

// endKept ends the open calls of a connection that is drained, so that their clients reconnect elsewhere.
func (c *conn) endKept() {
	if !c.drain.begun.IsZero() && c.state < stateClosing {
		c.streams.endKept()
	}
}

// unreadAnswers is how many bytes of answers may wait on each connection, also while memory is short.
const unreadAnswers = 16 << 10

// stallAfter is how long the rest of a frame may take, while memory is short, on a connection that keeps more than its
// share.
const stallAfter = 100 * time.Millisecond

func (c *conn) stalls() bool {
	since := c.reader.partialSince
	return !since.IsZero() && time.Since(since) > stallAfter && int64(c.streams.memory()) > c.pool.FairShare()
}

// relieve gives up the requests that are not complete, and buffers that are empty. A
// connection whose answers alone are more than half of its share is closed: its client
// does not read them.
func (c *conn) relieve() {
	c.mu.Lock()
	c.streams.refuseIncomplete()
	if int64(c.answers.unread()) > max(c.pool.FairShare()/2, unreadAnswers) {
		c.counters.timeouts.Add(1)
		c.abusive = true
		c.close("its answers wait while memory is short")
	} else if c.stalls() {
		c.counters.timeouts.Add(1)
		c.close("a frame or header block is not completed while memory is short")
	} else if c.canTrim() {
		c.startTrim()
	}
	c.streams.count()
	c.mu.Unlock()
	c.w.flushLater()
}
