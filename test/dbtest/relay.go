package dbtest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Relay passes TCP connections on to a server, and returns the address to connect to. It calls
// opened for each connection. It calls pass before it passes on what the client or the server has
// sent, and ends the connection instead if pass returns false. The test's cleanup ends it.
func Relay(t testing.TB, server string, opened func() (pass func(client bool) bool)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Check(t, err)
	var conns sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { relay(client, server, opened()) })
		}
	})
	return l.Addr().String()
}

// relay ends when either side has ended.
func relay(client net.Conn, address string, pass func(client bool) bool) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() {
		pump(server, client, func() bool { return pass(false) })
		_ = client.Close()
	})
	pump(client, server, func() bool { return pass(true) })
	_ = server.Close()
	both.Wait()
}

func pump(from, to net.Conn, pass func() bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !pass() {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Trips counts how often clients send after the server has: the round trips, whatever a driver
// makes of its calls.
type Trips struct {
	Addr string // to connect to
	n    atomic.Int64
}

// CountTrips counts the round trips to a server.
func CountTrips(t testing.TB, server string) *Trips {
	t.Helper()
	c := &Trips{}
	c.Addr = Relay(t, server, func() func(bool) bool {
		var asked atomic.Bool // the client was the last to send
		return func(client bool) bool {
			if before := asked.Swap(client); client && !before {
				c.n.Add(1)
			}
			return true
		}
	})
	return c
}

// Count is the number of round trips so far.
func (c *Trips) Count() int64 { return c.n.Load() }
