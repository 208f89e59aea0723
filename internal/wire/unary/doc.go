// Package unary is a small gRPC server for short unary calls: bytes in, messages out.
//
// It is cheap for one kind of load: many small calls in flight on few HTTP/2 connections, as a proxy sends them. Each
// connection has one goroutine, which reads whatever has arrived, hands all complete calls to their handler as one
// slice, and sends all answers with one write. A call needs no goroutine and no timer, and in the steady state no
// allocation.
//
// A handler that needs no I/O answers in that goroutine ([Handler.Inline]); one that does gets a goroutine of a bounded
// pool ([Handler.Serve]) while the connection reads on.
//
// # To change it
//
//   - HTTP/2 and gRPC framing: read.go, frame.go, request.go, encoder.go and write.go; go test ./internal/wire/unary
//   - a call from request to answer: requests.go, answers.go and streams.go; go test ./internal/wire/unary
//   - bounds on connections: config.go, memory.go, budget.go, undo.go and check.go; go test ./internal/wire/unary; go
//     test ./test/attack
//   - the workers: workers.go, queue.go and job.go; go test ./internal/wire/unary
//   - floods of calls, and whose turn it is: floods.go and internal/kit/web/turns.go (HTTP); go test
//     ./internal/wire/unary ./internal/kit/web -run 'Flood|Turn'; go test ./test/attack -run Floods
//
// # More
//
// A handler may keep an answered call open until the connection is drained ([Call.Open]), for clients that watch.
//
// The server knows gRPC's unary calls and the part of HTTP/2 that they need: no server push, no streaming in either
// direction, no priorities, no compression of answers. Everything that a client can send is bounded, in number, in
// bytes and in time; [Config] has the bounds. A client that exceeds them loses its connection and does not disturb
// others.
//
// The files are layers: each uses only those below it.
//
//	server.go                          listeners, connections, shutdown
//	watcher.go, check.go               deadlines, and ends for lack of memory
//	conn.go                            the read loop, and the parts of a connection:
//	  read.go                            frames
//	  requests.go, answers.go            a call from request to answer
//	  streams.go                         open streams, their memory, patience with the client
//	  drain.go                           ending without losing a call
//	  write.go                           what is sent
//	  link.go                            the socket, the state and the mutex, which all parts share
//	workers.go, queue.go, job.go       the pool that runs Serve
//	memory.go, budget.go, undo.go      the bounds
//	request.go, repeat.go, encoder.go, frame.go   bytes
package unary
