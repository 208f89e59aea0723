package unary

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"
)

// An eventKind is a kind of event that an operator wants to read of, but not once
// for each of thousands.
type eventKind uint8

const (
	connectionEnded eventKind = iota
	notSpoken
	tooManyConnections
	tooManyCalls
	tooMuchMemory
	callFailed
	callShed
	numEventKinds
)

// eventKinds say how each kind is logged.
var eventKinds = [numEventKinds]struct {
	level   slog.Level
	message string
}{
	tooManyConnections: {slog.LevelWarn, "connections refused: too many are open"},
	tooManyCalls:       {slog.LevelWarn, "calls refused: too many are in flight on the connection, or memory is short"},
	tooMuchMemory:      {slog.LevelWarn, "calls refused: too many bytes of requests and answers are in memory"},
	callFailed:         {slog.LevelInfo, "calls failed before their handler"},
	callShed:           {slog.LevelWarn, "calls shed: too many wait for the handler"},
	connectionEnded:    {slog.LevelInfo, "connection ended"},
	notSpoken:          {slog.LevelWarn, "connections ended: the client does not speak gRPC, and is not limited here"},
}

// An eventLog counts events and logs each kind once in a while.
type eventLog struct {
	kinds [numEventKinds]struct {
		n     atomic.Int64 // since the kind was last logged
		first atomic.Pointer[event]
	}
}

// An event is the example that is logged for all of its kind.
type event struct {
	client net.Addr
	reason string
}

// add counts n events of a client's.
func (l *eventLog) add(kind eventKind, n int, client net.Addr, reason string) {
	if k := &l.kinds[kind]; k.n.Add(int64(n)) == int64(n) {
		k.first.Store(&event{client, reason})
	}
}

// logEventsEvery is how often a kind of event is logged at most.
const logEventsEvery = time.Second

// flush logs a line for each kind of which there were events: the first of them,
// and how many others there were.
func (l *eventLog) flush(ctx context.Context, log *slog.Logger) {
	for kind := range l.kinds {
		k := &l.kinds[kind]
		first := k.first.Swap(nil)
		if first == nil {
			continue
		}
		about := &eventKinds[kind]
		log.Log(ctx, about.level, about.message, "client", first.client, "reason", first.reason, "suppressed", k.n.Swap(0)-1)
	}
}
