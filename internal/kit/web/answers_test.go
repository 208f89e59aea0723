package web

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/memory"
	"github.com/headgate-rls/headgate/test/testenv"
)

// serveCounted serves h from a listener that is counted. The log is that of the server.
func serveCounted(t *testing.T, b Bounds, h http.HandlerFunc) (address string, log *testenv.Log) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log = new(testenv.Log)
	server := b.NewServer(h, 20*time.Second, slog.New(slog.NewTextHandler(log, nil)))
	go func() { _ = server.Serve(b.Stats.Listener(inner)) }()
	t.Cleanup(func() { _ = server.Close() })
	return inner.Addr().String(), log
}

// ask opens a connection with little room for what comes, and sends a text.
func ask(t *testing.T, address, text string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, _ = io.WriteString(nc, text)
	return nc
}

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// TestAnswersThatMakeNoProgressEnd: a client that reads nothing, and one that reads a byte a second, lose their
// connections within seconds; one that reads slowly and steadily gets all. The next of the requests of a
// connection is not worked on before.
func TestAnswersThatMakeNoProgressEnd(t *testing.T) {
	stats := new(Stats)
	var begun atomic.Int64
	whole := bytes.Repeat([]byte("x"), 1<<20)
	address, log := serveCounted(t, Bounds{Stats: stats}, func(w http.ResponseWriter, _ *http.Request) {
		begun.Add(1)
		_, _ = w.Write(whole)
	})
	began := time.Now()
	var clients sync.WaitGroup
	for _, some := range []int{0, 1} {
		clients.Go(func() {
			nc := ask(t, address, strings.Repeat(get, 40))
			for stats.Timeouts.Value() < 2 && time.Since(began) < 15*time.Second {
				time.Sleep(time.Second)
				_, _ = nc.Read(make([]byte, some))
			}
		})
	}
	clients.Go(func() {
		nc := ask(t, address, get)
		_ = nc.(*net.TCPConn).SetReadBuffer(128 << 10)
		read := 0
		for some := make([]byte, 128<<10); read < len(whole); time.Sleep(500 * time.Millisecond) {
			n, err := io.ReadFull(nc, some)
			if read += n; err != nil && read < len(whole) {
				t.Errorf("a steady reader gets %d bytes: %v", read, err)
				return
			}
		}
	})
	clients.Wait()
	if n, took := stats.Timeouts.Value(), time.Since(began); n != 2 || took > 8*time.Second {
		t.Errorf("%d connections ended in %v", n, took)
	}
	if n := begun.Load(); n != 3 {
		t.Errorf("%d requests were worked on", n)
	}
	if text := log.String(); strings.Count(text, "does not read its answer") == 0 {
		t.Errorf("the log: %s", text)
	}
}

// TestAnswersTakeMemoryBeforeTheyAreMade: those that have no room are 503 with Retry-After, are counted and logged, and
// small ones go on; when the others have been read, there is room again.
func TestAnswersTakeMemoryBeforeTheyAreMade(t *testing.T) {
	const size = 1 << 20
	stats, pool := new(Stats), memory.NewPool(16<<20) // a quarter of it is for answers
	made := make(chan struct{})
	var kept atomic.Int64
	address, log := serveCounted(t, Bounds{Stats: stats, Memory: pool}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/small" {
			if err := Keep(w, r, freeAnswer); err != nil {
				t.Error(err)
			}
			return
		}
		if err := Keep(w, r, size); err != nil {
			Error(w, err.(*RequestError).Status, err.Error())
			return
		}
		kept.Add(1)
		<-made
	})
	for range 10 {
		ask(t, address, get)
	}
	eventually(t, "some are kept, and the others are refused", func() bool {
		return kept.Load() == 4 && stats.NoMemory.Value() == 6
	})
	if used := pool.Used(); used > 4*size {
		t.Errorf("%d bytes are counted", used)
	}
	resp, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if resp, err = http.Get("http://" + address + "/small"); err != nil || resp.StatusCode != 200 {
		t.Errorf("a small one: %v %v", resp, err)
	}
	close(made)
	eventually(t, "all memory is given back", func() bool { return pool.Used() == 0 })
	if text := log.String(); !strings.Contains(text, `for="an answer"`) {
		t.Errorf("the log: %s", text)
	}
}

// TestHealthChecksGoFirst: before requests that wait, but not before all of them where there are many.
func TestHealthChecksGoFirst(t *testing.T) {
	turns := NewTurns()
	turns.free = 1
	turns.take(t.Context(), fresh)
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	for i, name := range []string{"fresh", "begun", "urgent", "urgent", "fresh", "begun", "urgent"} {
		as := map[string]rank{"fresh": fresh, "begun": begun, "urgent": urgent}[name]
		all.Go(func() {
			if turns.take(t.Context(), as) {
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				turns.give()
			}
		})
		eventually(t, "it waits", func() bool {
			turns.mu.Lock()
			defer turns.mu.Unlock()
			n := 0
			for of := range turns.waiting {
				n += turns.waiting[of].Len()
			}
			return n == i+1
		})
	}
	turns.give()
	all.Wait()
	if got, want := fmt.Sprint(order), "[urgent begun urgent begun urgent fresh fresh]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !turns.allFree(1) {
		t.Error("a turn is lost")
	}
}

// TestComputingKeepsTheTurn: for much longer than two milliseconds, while it computes and writes to a client that
// reads. Waiting for a store elsewhere gives it back, and ends with a turn.
func TestComputingKeepsTheTurn(t *testing.T) {
	var computing, most, waiting, together atomic.Int64
	turns, address := serveInTurns(t, func(w http.ResponseWriter, r *http.Request) {
		part := func() {
			most.Store(max(most.Load(), computing.Add(1)))
			spin(8 * time.Millisecond)
			computing.Add(-1)
		}
		part()
		resume := Yield(r.Context())
		together.Store(max(together.Load(), waiting.Add(1)))
		time.Sleep(20 * time.Millisecond)
		waiting.Add(-1)
		resume()
		part()
		_, _ = w.Write(make([]byte, 64<<10))
		part()
	})
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() {
			nc := ask(t, address, strings.Repeat(get, 3))
			answers := bufio.NewReader(nc)
			for range 3 {
				resp, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		})
	}
	clients.Wait()
	// A part that the machine holds up for longer than a turn lasts computes beside another.
	if most.Load() > 2 || together.Load() < 2 {
		t.Errorf("%d computed at a time, %d waited together", most.Load(), together.Load())
	}
	if !turns.allFree(1) {
		t.Error("turns are not given back")
	}
}

// TestBorrowedTurns: work that requests share computes in a turn, or without one if none comes in time.
func TestBorrowedTurns(t *testing.T) {
	turns := NewTurns()
	turns.free = 1
	done := turns.Borrow(t.Context())
	if turns.allFree(1) {
		t.Error("it has no turn")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	turns.Borrow(ctx)() // in vain
	done()
	done()
	if !turns.allFree(1) {
		t.Error("a turn is lost")
	}
}
