package sqlstore

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A tripCounter stands between a client and a server, and counts how often the client speaks after
// the server has: the round trips, whatever a driver makes of its calls.
type tripCounter struct {
	addr  string
	trips atomic.Int64
}

func countTrips(t testing.TB, server string) *tripCounter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	c := &tripCounter{addr: l.Addr().String()}
	var conns sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { c.relay(client, server) })
		}
	})
	return c
}

func (c *tripCounter) relay(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	var asked atomic.Bool // the client was the last to speak
	var done sync.WaitGroup
	done.Go(func() {
		defer client.Close()
		_, _ = io.Copy(client, spy{server, func() { asked.Store(false) }})
	})
	_, _ = io.Copy(server, spy{client, func() {
		if !asked.Swap(true) {
			c.trips.Add(1)
		}
	}})
	_ = server.Close()
	done.Wait()
}

// spy calls heard before what was read is handed on.
type spy struct {
	from  io.Reader
	heard func()
}

func (s spy) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if n > 0 {
		s.heard()
	}
	return n, err
}

// A slice takes two round trips however long the connection has been idle, with new keys and without,
// admitted or refused.
func TestRoundTrips(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		counter := countTrips(t, hostOf(t, url))
		b := open(t, through(t, url, counter.addr))
		b.db.Write.SetMaxOpenConns(1)
		warmed(t, b)
		l := upTo(1)
		for i, groups := range [][]string{{"a"}, {"b", "c"}, {"a"}, {"a", "d"}, {"e", "f", "g"}} {
			if i == 4 {
				time.Sleep(1200 * time.Millisecond)
			}
			before := counter.trips.Load()
			check(t, try(soon(t), b, ask(l, 1, groups...))[0].Err)
			if n := counter.trips.Load() - before; n != 2 {
				t.Errorf("slice %d, %v: %d round trips, want 2", i, groups, n)
			}
		}
	})
}
