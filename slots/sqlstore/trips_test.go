package sqlstore

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// A tripCounter stands between a client and a server, and counts how often the
// client speaks after the server has: the round trips, whatever a driver makes
// of its calls.
type tripCounter struct {
	addr  string
	trips atomic.Int64
}

func countTrips(t *testing.T, server string) *tripCounter {
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

// The procedure takes one round trip, the tx engine three,
// and a repeat one.
func TestRoundTrips(t *testing.T) {
	eachServer(t, func(t *testing.T, address string) {
		u, err := url.Parse(address)
		check(t, err)
		direct := migrated(t, address)
		provision(t, direct, 0, 200)
		counter := countTrips(t, u.Host)
		u.Host = counter.addr
		db := mustOpen(t, u.String())
		db.sql.Write.SetMaxOpenConns(1)
		for engine, want := range map[string]int64{"tx": 3, "procedure": 1} {
			e := slots.TxEngine(db)
			if engine == "procedure" {
				if db.Procedure() == nil {
					continue
				}
				e = slots.ProcedureEngine(db.Procedure(), e)
			}
			for n := range 4 {
				s := &slots.Search{Series: series, ConfigID: "c", Max: 1000, FirstMs: 0, FromMs: series.SizeMs,
					EndMs: plan.MaxSizeMs,
					Asks:  []slots.Ask{{EventID: fmt.Sprint(engine, n), SlotID: fmt.Sprint("s", engine, n), FirstMax: 1000}}}
				for _, status := range []slots.Status{slots.New, slots.Existing} {
					before := counter.trips.Load()
					found, err := e.Assign(soon(t), s)
					check(t, err)
					if found.Answers[0].Status != status {
						t.Fatalf("%s, %s, event %d: %+v", db.dialect.Name, engine, n, found.Answers[0])
					}
					s.Asks[0].SlotID += "again"
					trips := counter.trips.Load() - before
					if n == 0 { // connects, and makes statements known to the server
						continue
					}
					if status == slots.Existing && trips != 1 {
						t.Errorf("%s, %s: a repeat takes %d round trips, want 1", db.dialect.Name, engine, trips)
					}
					if status == slots.New && trips != want {
						t.Errorf("%s, %s: %d round trips, want %d", db.dialect.Name, engine, trips, want)
					}
				}
			}
		}
	})
}
