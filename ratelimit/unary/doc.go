// Package unary is a small gRPC server for short unary calls: bytes in,
// messages out.
//
// It serves one thing and serves it cheaply: many small calls in flight on few
// HTTP/2 connections, as a proxy sends them. Each connection has one goroutine
// that reads whatever has arrived, hands all complete calls to their handler as
// one slice, and sends all answers with one write. There is no goroutine, no
// timer and in the steady state no allocation per call.
//
// A handler that needs no I/O answers in that goroutine ([Handler.Inline]); one
// that does gets a goroutine of a bounded pool ([Handler.Serve]) while the
// connection reads on.
//
// The server knows gRPC's unary calls and the part of HTTP/2 that they need:
// no server push, no streaming in either direction, no priorities, no
// compression of answers. Everything that a client can send is bounded, in
// number, in bytes and in time; see [Config] for the bounds. A client that
// keeps to none of them loses its connection and disturbs no other.
package unary
