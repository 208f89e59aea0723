package server

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// meteredPair returns a connection as grpc-go reads it, and its client.
func meteredPair(t *testing.T, pool *memory.Pool) (*meteredConn, net.Conn) {
	t.Helper()
	client, inner := net.Pipe()
	l := newBoundListener(nil, 10, pool)
	bound := &boundConn{Conn: inner, l: l, closed: func() {}}
	bound.account.Pool = pool
	pool.Join()
	t.Cleanup(func() { client.Close() })
	return newMeteredConn(inner, bound), client
}

// TestBytesOfUnfinishedCallsAreCounted: what a client has sent of calls counts until they are answered or cancelled,
// however the frames are cut.
func TestBytesOfUnfinishedCallsAreCounted(t *testing.T) {
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&sent, nil)
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	for _, id := range []uint32{1, 3, 5} {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 100), EndHeaders: true})
		_ = fr.WriteData(id, false, make([]byte, 1000))
	}
	_ = fr.WriteRSTStream(3, http2.ErrCodeCancel)
	_ = fr.WriteData(3, false, make([]byte, 1000)) // late
	for _, cut := range []int{1, 7, 100, 1 << 20} {
		pool := memory.NewPool(1 << 20)
		c, client := meteredPair(t, pool)
		go func() {
			for rest := sent.Bytes(); len(rest) > 0; {
				n, _ := client.Write(rest[:min(cut, len(rest))])
				rest = rest[n:]
			}
		}()
		if _, err := io.ReadFull(c, make([]byte, sent.Len())); err != nil {
			t.Fatal(err)
		}
		if want := int64(2 * (grpcStream + 2*100 + 1000 + grpcFrame)); pool.Used() != want {
			t.Errorf("in pieces of %d: %d bytes are counted, want %d", cut, pool.Used(), want)
		}
		go func() { _, _ = io.Copy(io.Discard, client) }()
		var answer bytes.Buffer
		out := http2.NewFramer(&answer, nil)
		_ = out.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0}, EndHeaders: true})
		_ = out.WriteData(1, false, []byte("x"))
		trailers := http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0}, EndHeaders: true, EndStream: true}
		_ = out.WriteHeaders(trailers)
		_ = out.WriteRSTStream(5, http2.ErrCodeNo)
		if _, err := c.Write(answer.Bytes()); err != nil {
			t.Fatal(err)
		}
		if pool.Used() != 0 {
			t.Errorf("in pieces of %d: %d bytes are counted when all is answered", cut, pool.Used())
		}
		c.Close()
	}
}

// TestConnectionsThatKeepMoreThanTheirShareAreClosed: one that asks for more while memory is short, and one that sits
// on what it got before.
func TestConnectionsThatKeepMoreThanTheirShareAreClosed(t *testing.T) {
	pool := memory.NewPool(1 << 20)
	c, client := meteredPair(t, pool)
	sitting, _ := meteredPair(t, pool)
	sitting.of.l = c.of.l
	c.of.l.open[sitting.of] = struct{}{}
	sitting.of.account.Set(500 << 10)
	c.of.l.relieved.Store(time.Now().Add(time.Hour).UnixNano()) // by a clock that has stepped back since
	go func() {
		fr := http2.NewFramer(client, nil)
		_, _ = io.WriteString(client, http2.ClientPreface)
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 100), EndHeaders: true})
		for fr.WriteData(1, false, make([]byte, 16<<10)) == nil {
		}
	}()
	_ = sitting.Conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	read, err := io.Copy(io.Discard, c)
	if err == nil || read > 600<<10 {
		t.Errorf("%d bytes were read, then: %v", read, err)
	}
	if _, err := sitting.Conn.Read(make([]byte, 1)); err == nil || !bytes.Contains([]byte(err.Error()), []byte("closed")) {
		t.Errorf("the connection that keeps more than its share: %v", err)
	}
	c.Close()
	if used := pool.Used(); used != 500<<10 {
		t.Errorf("%d bytes are counted of connections that are closed", used-500<<10)
	}
}
