package unary

import (
	"net"
	"sync"
	"time"
)

// A connState is how far a connection has come. It only goes up.
type connState uint8

const (
	stateOpen           connState = iota
	stateDrainAnnounced           // a first GOAWAY is sent: calls on their way are still taken
	stateDraining                 // the last GOAWAY is sent: only the calls that we have are answered
	stateClosing                  // what is queued is sent, nothing more is taken
	stateHalfClosed               // our side is closed; the client has a moment to close its own
	stateClosed                   // the socket is closed
)

// A link is what the parts of a connection share: its socket, its state, and the
// mutex that guards all parts. Nobody holds the mutex while it waits for anything.
type link struct {
	*shared
	nc   net.Conn
	peer string // who the client is, by Config.Identify

	mu        sync.Mutex
	wake      sync.Cond // signalled when a write ends, and when the connection closes
	state     connState
	reason    string    // why the connection ends, or empty
	ending    eventKind // as what that is logged
	now       time.Time // of the step that is under way
	preface   bool      // the client's preface has arrived
	settled   bool      // its SETTINGS have arrived too
	lastID    uint32    // its latest stream
	abusive   bool      // it has used up our patience: no work is done for it
	callCount callCounts
}

// close closes the socket at once. Goroutines that wait for it wake up.
func (l *link) close(reason string) {
	if l.state == stateClosed {
		return
	}
	l.state = stateClosed
	if l.reason == "" {
		l.reason = reason
	}
	l.wake.Broadcast()
	closeNow(l.nc)
}

// logEvent logs an event of this client's.
func (l *link) logEvent(kind eventKind, reason string) {
	l.events.add(kind, 1, l.nc.RemoteAddr(), reason)
}

// neverOpened reports whether a stream was never opened.
func (l *link) neverOpened(id uint32) bool { return id > l.lastID || id%2 == 0 }

// closeNow closes a socket without TLS's farewell, which may have to wait for the
// client.
func closeNow(nc net.Conn) {
	if wrapped, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = wrapped.NetConn()
	}
	_ = nc.Close() // nothing can be done about it
}

// closeWrite closes our side of a socket.
func closeWrite(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // a timeout closes the rest soon
	}
}
