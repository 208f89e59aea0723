package unary

import (
	"time"

	"golang.org/x/net/http2"
)

// A drain ends a connection without losing a call. The client first learns that
// it must open no more streams, and those that it opened before it learnt that are
// still taken: the answer to a ping reports that it has. Then it learns the last
// stream that is served. The connection's mutex guards a drain.
type drain struct {
	*link
	w     *writer
	begun time.Time // or zero
	last  uint32    // the last stream that is served in stateDraining
}

// start begins the drain.
func (d *drain) start() {
	if d.begun.IsZero() {
		d.begun = d.now
	}
	if d.state != stateOpen || !d.settled { // its SETTINGS come first
		return
	}
	d.state = stateDrainAnnounced
	d.w.goAway(maxWindow, http2.ErrCodeNo, "")
	d.w.ping(0, drainPing)
}

// settle goes on with a drain that began before the client's SETTINGS.
func (d *drain) settle() {
	if !d.begun.IsZero() {
		d.start()
	}
}

// finish sends the client the number of the last stream that is served.
func (d *drain) finish() {
	d.state, d.last = stateDraining, d.lastID
	d.w.goAway(d.lastID, http2.ErrCodeNo, "")
}

// takes reports whether a stream is served. If not, the client knows and tries it
// elsewhere.
func (d *drain) takes(id uint32) bool {
	return d.state != stateDraining || id <= d.last
}

// check goes on with a drain whose client does not do its part.
func (d *drain) check() {
	if d.begun.IsZero() || d.now.Sub(d.begun) < min(time.Second, d.conf.Grace/2) {
		return
	}
	switch {
	case d.state == stateDrainAnnounced:
		d.finish() // the client does not answer the ping
	case !d.settled:
		d.close("") // it says nothing at all
	}
}
