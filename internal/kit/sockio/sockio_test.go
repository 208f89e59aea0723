package sockio_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sockio"
)

// pair returns both ends of a connection, the first of which is one of this package's.
func pair(t *testing.T, network string) (ours, other net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err = net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours = sockio.Conn(nc)
	if runtime.GOOS == "linux" && ours == nc {
		t.Fatal("the connection is package net's")
	}
	for _, c := range []net.Conn{ours, other} {
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	return ours, other
}

func eachNetwork(t *testing.T, test func(t *testing.T, network string)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) { test(t, network) })
	}
}

func TestAllBytesArrive(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		ours, other := pair(t, network)
		text := make([]byte, 3<<20)
		for i := range text {
			text[i] = byte(rand.Uint32())
		}
		go func() { _, _ = io.Copy(other, other) }() // the same bytes come back
		go func() {
			for b := text; len(b) > 0; {
				n := min(len(b), rand.IntN(200_000))
				if written, err := ours.Write(b[:n]); err != nil || written != n {
					t.Errorf("wrote %d of %d: %v", written, n, err)
					return
				}
				b = b[n:]
			}
		}()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(ours, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, text) {
			t.Error("the bytes came back changed")
		}
	})
}

func TestErrorsAreThoseOfPackageNet(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		for _, c := range []struct {
			name string
			do   func(ours, other net.Conn) error
			want error
		}{
			{"end", func(ours, other net.Conn) error {
				_ = other.Close()
				_, err := ours.Read(make([]byte, 1))
				return err
			}, io.EOF},
			{"read after the deadline", func(ours, _ net.Conn) error {
				_ = ours.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				_, err := ours.Read(make([]byte, 1))
				return err
			}, os.ErrDeadlineExceeded},
			{"write after the deadline", func(ours, other net.Conn) error {
				_ = ours.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				n, err := ours.Write(make([]byte, 64<<20)) // nobody reads
				_ = ours.Close()
				if got, _ := io.Copy(io.Discard, other); got != int64(n) {
					t.Errorf("wrote %d bytes, and %d arrived", n, got)
				}
				return err
			}, os.ErrDeadlineExceeded},
			{"read of a closed one", func(ours, _ net.Conn) error {
				time.AfterFunc(20*time.Millisecond, func() { _ = ours.Close() })
				_, err := ours.Read(make([]byte, 1))
				return err
			}, net.ErrClosed},
			{"write to a closed one", func(ours, _ net.Conn) error {
				_ = ours.Close()
				_, err := ours.Write(make([]byte, 1))
				return err
			}, net.ErrClosed},
			{"write to one that has left", func(ours, other net.Conn) error {
				_ = other.Close()
				for {
					if _, err := ours.Write(make([]byte, 1000)); err != nil && !errors.Is(err, syscall.ECONNRESET) {
						return err
					}
				}
			}, syscall.EPIPE},
		} {
			ours, other := pair(t, network)
			err := c.do(ours, other)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			var op *net.OpError
			if c.want != io.EOF && (!errors.As(err, &op) || op.Source == nil || strings.Contains(err.Error(), "raw")) {
				t.Errorf("%s: %v is not like an error of package net", c.name, err)
			}
			var timeout net.Error
			if c.want == os.ErrDeadlineExceeded && (!errors.As(err, &timeout) || !timeout.Timeout()) {
				t.Errorf("%s: %v is no timeout", c.name, err)
			}
		}
	})
}

func TestWritesAreNotMixed(t *testing.T) {
	ours, other := pair(t, "tcp")
	const size, each = 300_000, 5
	var writers sync.WaitGroup
	for _, letter := range "abcd" {
		writers.Go(func() {
			for range each {
				if _, err := ours.Write(bytes.Repeat([]byte{byte(letter)}, size)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	b := make([]byte, size)
	for range 4 * each {
		if _, err := io.ReadFull(other, b); err != nil {
			t.Fatal(err)
		}
		if i := bytes.IndexFunc(b, func(r rune) bool { return r != rune(b[0]) }); i >= 0 {
			t.Fatalf("after %d bytes of one write comes another", i)
		}
	}
	writers.Wait()
}

// TestSlowReaderKeepsNobody: a write that waits for its reader uses no core.
func TestSlowReaderKeepsNobody(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ours, other := pair(t, "tcp")
	ctx, done := context.WithCancel(context.Background())
	go func() {
		defer done()
		_, _ = ours.Write(make([]byte, 32<<20))
	}()
	for range 100 { // of which each needs the only core
		time.Sleep(time.Millisecond)
	}
	if ctx.Err() != nil {
		t.Fatal("the write did not wait")
	}
	if _, err := io.CopyN(io.Discard, other, 32<<20); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

func TestReadsAndWritesAllocateNothing(t *testing.T) {
	ours, other := pair(t, "tcp")
	go func() { _, _ = io.Copy(other, other) }()
	b := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := ours.Write(b); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(ours, b); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOtherConnectionsStayAsTheyAre(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if sockio.Conn(a) != a {
		t.Error("a pipe was replaced")
	}
}
