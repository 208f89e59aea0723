package unary

import (
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

// A trouble is a kind of event that an operator wants to read of, but not once
// for each of thousands.
type trouble uint8

const (
	tooManyConnections trouble = iota
	tooManyCalls
	tooMuchMemory
	callFailed
	callShed
	connectionEnded
	numTroubles
)

// troubleKinds say how each trouble is logged.
var troubleKinds = [numTroubles]struct {
	level   slog.Level
	message string
}{
	tooManyConnections: {slog.LevelWarn, "connections refused: too many are open"},
	tooManyCalls:       {slog.LevelWarn, "calls refused: too many are in flight on the connection, or memory is short"},
	tooMuchMemory:      {slog.LevelWarn, "calls refused: too many bytes of requests and answers are in memory"},
	callFailed:         {slog.LevelInfo, "calls failed before their handler"},
	callShed:           {slog.LevelWarn, "calls shed: too many wait for the handler"},
	connectionEnded:    {slog.LevelInfo, "connection ended"},
}

// A tally is how often there was trouble since it was last logged.
type tally struct {
	n     atomic.Int64
	first atomic.Pointer[example]
}

type example struct {
	client net.Addr
	reason string
}

// trouble counts n cases of trouble with a client.
func (s *Server) trouble(kind trouble, n int, client net.Addr, reason string) {
	if t := &s.tallies[kind]; t.n.Add(int64(n)) == int64(n) {
		t.first.Store(&example{client, reason})
	}
}

// sayEvery is how often a kind of trouble is logged at most.
const sayEvery = time.Second

// say logs a line for each kind of trouble that there was: its first case, and
// how many others there were.
func (s *Server) say() {
	for kind := range s.tallies {
		t := &s.tallies[kind]
		first := t.first.Swap(nil)
		if first == nil {
			continue
		}
		k := &troubleKinds[kind]
		s.log.Log(s.ctx, k.level, k.message, "client", first.client, "reason", first.reason, "not_logged", t.n.Swap(0)-1)
	}
}
