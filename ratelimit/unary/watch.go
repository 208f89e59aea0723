package unary

import (
	"time"

	"golang.org/x/net/http2"
)

// All waiting for clients is bounded by one goroutine that looks at every
// connection now and then, rather than by timers: a call starts none.

// trimAfter is how long a connection is quiet before it gives its buffers back.
const trimAfter = 5 * time.Second

// The data of our own pings, by which their answers are known.
var (
	alivePing = [8]byte{'a', 'l', 'i', 'v', 'e'}
	drainPing = [8]byte{'d', 'r', 'a', 'i', 'n'}
)

// watch looks after connections until the server is closed.
func (s *Server) watch() {
	defer s.running.Done()
	for s.conf.Panics.Do("watch", s.look) != nil {
		continue // without it nothing would be bounded
	}
}

// look looks at all connections until the server is closed.
func (s *Server) look() {
	ticker := time.NewTicker(s.conf.tick())
	defer ticker.Stop()
	var conns []*conn
	var relieved, said time.Time
	for {
		select {
		case <-s.ctx.Done():
			s.say()
			return
		case <-s.full:
			if now := time.Now(); now.Sub(relieved) >= relieveEvery { // else the ticker sees to it
				relieved = now
				conns = s.appendConns(conns[:0])
				s.relieve(conns)
			}
		case now := <-ticker.C:
			conns = s.appendConns(conns[:0])
			for _, c := range conns {
				c.check(now)
			}
			if s.memory.Load() > int64(s.conf.MaxBuffered) {
				s.relieve(conns)
			}
			if now.Sub(said) >= sayEvery {
				said = now
				s.say()
			}
		}
		clear(conns)
	}
}

func (s *Server) appendConns(list []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}

// tick is how often to look: often enough for the shortest of the timeouts.
func (conf *Config) tick() time.Duration {
	shortest := 4 * time.Second
	for _, d := range []time.Duration{conf.ReadTimeout, conf.WriteTimeout, conf.KeepaliveInterval,
		conf.KeepaliveTimeout, conf.IdleTimeout, conf.MaxConnectionAge, conf.Grace} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return max(shortest/8, 5*time.Millisecond)
}

// check ends what has taken too long.
func (c *conn) check(now time.Time) {
	c.lookAfter(now)
	c.flushSoon()
}

func (c *conn) lookAfter(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	if reason := c.overdue(); reason != "" {
		c.s.stats.timeouts.Add(1)
		c.kill(reason)
	}
	if c.state == stateLingering && now.After(c.lingerUntil) {
		c.kill("")
	}
	if c.state < stateClosing {
		c.checkStreams()
		c.checkAge()
		c.checkAlive()
	}
	c.receipts.prune(now)
	c.report()
}

// overdue tells what the client has not done in time.
func (c *conn) overdue() string {
	conf := &c.s.conf
	past := func(since time.Time, limit time.Duration) bool { return c.now.Sub(since) > limit }
	switch {
	case c.state == stateDead || c.state == stateLingering && !c.writing:
		return ""
	case c.writing && past(c.writeSince, conf.WriteTimeout):
		return "the client does not read"
	case !c.reading.Load() && c.settled:
		return "" // it is us who are busy
	case !c.settled && past(c.made, conf.ReadTimeout):
		return "no HTTP/2 preface and SETTINGS in time"
	case !c.partialSince.IsZero() && past(c.partialSince, conf.ReadTimeout):
		return "a frame or header block was not completed in time"
	case !c.pingAt.IsZero() && past(c.pingAt, conf.KeepaliveTimeout):
		return "no answer to a keepalive ping"
	case !c.drainAt.IsZero() && past(c.drainAt, conf.Grace):
		return "calls were still open when the grace period of the drain ended"
	}
	return ""
}

// watchStreams sees to it that a stream of which something is expected is
// looked at in time.
func (c *conn) watchStreams() {
	at := c.now.Add(min(c.s.conf.ReadTimeout, c.s.conf.WriteTimeout))
	if c.streamsAt.IsZero() || at.Before(c.streamsAt) {
		c.streamsAt = at
	}
}

// checkStreams ends requests that do not arrive and answers that the client
// gives no window for.
func (c *conn) checkStreams() {
	if c.streamsAt.IsZero() || c.now.Before(c.streamsAt) {
		return
	}
	c.streamsAt = time.Time{}
	for _, st := range c.streams {
		switch {
		case !st.ended && c.now.Sub(st.since) > c.s.conf.ReadTimeout:
			c.s.stats.timeouts.Add(1)
			c.refuse(st, errSlow)
		case st.blocked && c.now.Sub(st.since) > c.s.conf.WriteTimeout:
			c.s.stats.timeouts.Add(1)
			c.reset(st.id, http2.ErrCodeEnhanceYourCalm)
			c.drop(st, true)
		case !st.ended || st.blocked:
			c.watchStreams()
		}
	}
	if c.opened {
		c.pump()
	}
}

var errSlow = &Status{DeadlineExceeded, "the request did not arrive in time"}

// checkAge drains a connection that is old or has nothing to do.
func (c *conn) checkAge() {
	conf := &c.s.conf
	switch {
	case c.age > 0 && c.now.Sub(c.made) > c.age,
		conf.IdleTimeout > 0 && c.active == 0 && c.now.Sub(c.lastCall) > conf.IdleTimeout:
		c.startDrain()
	}
	if c.drainAt.IsZero() || c.now.Sub(c.drainAt) < min(time.Second, conf.Grace/2) {
		return
	}
	switch {
	case c.state == stateLeaving:
		c.leave() // the client does not answer the ping
	case !c.settled:
		c.kill("") // it says nothing at all
	}
}

// checkAlive pings a client that is quiet, and then lets it cost less.
func (c *conn) checkAlive() {
	if !c.reading.Load() || !c.settled {
		return
	}
	quiet := c.now.Sub(c.lastRead)
	if every := c.s.conf.KeepaliveInterval; every > 0 && quiet > every && c.pingAt.IsZero() {
		c.pingAt = c.now
		c.out = appendPing(c.out, 0, alivePing)
	}
	if quiet > trimAfter && c.fat && !c.trimming {
		c.trimming = true
		if err := c.nc.SetReadDeadline(time.Unix(1, 0)); err != nil {
			c.kill("read deadline: " + err.Error())
		}
	}
}

// startDrain begins to end the connection without losing a call: the client
// learns that it must open no more streams, and those that it opened before it
// learnt that are still taken. The answer to the ping tells that it has.
func (c *conn) startDrain() {
	if c.drainAt.IsZero() {
		c.drainAt = c.now
	}
	if c.state != stateOpen || !c.settled { // its SETTINGS come first
		return
	}
	c.state = stateLeaving
	c.out = appendGoAway(c.out, maxWindow, http2.ErrCodeNo, "")
	c.out = appendPing(c.out, 0, drainPing)
}

// leave tells the client the last stream that is served.
func (c *conn) leave() {
	c.state, c.goAwayID = stateLeft, c.lastID
	c.out = appendGoAway(c.out, c.lastID, http2.ErrCodeNo, "")
}

// leftOut tells whether a stream came after the last one that is served. The
// client knows and tries it elsewhere.
func (c *conn) leftOut(id uint32) bool {
	return c.state == stateLeft && id > c.goAwayID
}
