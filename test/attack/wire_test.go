package attack

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
)

// A wire is a connection of an attacker: frames made by hand. What comes back is
// read by a goroutine that counts it.
type wire struct {
	g    *target
	nc   net.Conn
	out  *bufio.Writer
	fr   *http2.Framer
	enc  *hpack.Encoder
	head bytes.Buffer
	next uint32 // stream

	most    int                  // streams that the server allows
	settled chan struct{}        // closed when settings have arrived, or the connection has ended
	has     bool                 // settings have arrived
	onData  func(message []byte) // of answers; nil to ignore them

	answered atomic.Int64 // streams that ended with trailers
	replies  atomic.Int64 // of these, with a message
	reset    atomic.Int64 // streams that the server reset
	pongs    atomic.Int64 // answers to pings
	closed   atomic.Bool  // by the server
	wg       sync.WaitGroup
}

// writeWithin bounds a write of an attacker: a server may stop reading from it.
const writeWithin = 10 * time.Second

// counted counts what is written.
type counted struct{ w *wire }

func (c counted) Write(p []byte) (int, error) {
	_ = c.w.nc.SetWriteDeadline(time.Now().Add(writeWithin))
	n, err := c.w.nc.Write(p)
	c.w.g.sent.Add(int64(n))
	return n, err
}

// connect opens a connection and exchanges settings.
func (g *target) connect(settings ...http2.Setting) *wire {
	w := g.tryConnect(settings...)
	if w == nil {
		g.t.Fatal("no SETTINGS from headgate")
	}
	return w
}

// tryConnect is connect that returns nil if headgate refuses the connection.
func (g *target) tryConnect(settings ...http2.Setting) *wire {
	network, addr := "tcp", g.hg.GRPC
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	nc, err := net.Dial(network, addr)
	if err != nil {
		g.t.Fatal(err)
	}
	w := &wire{g: g, nc: nc, next: 1, most: 1 << 14, settled: make(chan struct{})}
	w.out = bufio.NewWriterSize(counted{w}, 64<<10)
	w.fr = http2.NewFramer(w.out, bufio.NewReaderSize(nc, 64<<10))
	w.fr.AllowIllegalWrites = true
	w.fr.SetReuseFrames()
	w.enc = hpack.NewEncoder(&w.head)
	_, _ = w.out.WriteString(http2.ClientPreface)
	_ = w.fr.WriteSettings(settings...)
	_ = w.fr.WriteWindowUpdate(0, 1<<31-1-65535) // answers need no more
	w.flush()
	w.wg.Go(w.read)
	select {
	case <-w.settled:
	case <-time.After(10 * time.Second):
	}
	if !w.has {
		nc.Close()
		w.wg.Wait()
		return nil
	}
	g.conns = append(g.conns, w)
	_ = w.fr.WriteSettingsAck()
	w.flush()
	return w
}

// handled waits until the server has handled all that was sent, or has closed
// the connection: it answers a ping only then.
func (w *wire) handled(limit time.Duration) bool {
	before := w.pongs.Load()
	_ = w.fr.WritePing(false, [8]byte{})
	w.flush()
	return waitUntil(limit, func() bool { return w.closed.Load() || w.pongs.Load() > before })
}

// closeAll closes all connections of the attacker.
func (g *target) closeAll() {
	for _, w := range g.conns {
		w.nc.Close()
		w.wg.Wait()
	}
}

// read counts what comes back until the connection ends.
func (w *wire) read() {
	fr := http2.NewFramer(nil, bufio.NewReaderSize(w.nc, 64<<10))
	fr.SetReuseFrames()
	for first := true; ; {
		f, err := fr.ReadFrame()
		if err != nil {
			w.closed.Store(true)
			if first {
				close(w.settled)
			}
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if first && !f.IsAck() {
				if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
					w.most = int(n)
				}
				first, w.has = false, true
				close(w.settled)
			}
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				w.answered.Add(1)
			}
		case *http2.RSTStreamFrame:
			w.reset.Add(1)
		case *http2.PingFrame:
			w.pongs.Add(1)
		case *http2.DataFrame:
			w.replies.Add(1)
			if w.onData != nil && len(f.Data()) > 5 {
				w.onData(f.Data()[5:])
			}
		}
	}
}

// flush sends what is queued and reports whether that was possible.
func (w *wire) flush() bool { return w.out.Flush() == nil && !w.closed.Load() }

// block encodes a header block of name and value pairs.
func (w *wire) block(fields ...string) []byte {
	w.head.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = w.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into memory
	}
	return w.head.Bytes()
}

const (
	methodDecide = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	methodHealth = "/grpc.health.v1.Health/Check"
)

func headers(method string, more ...string) []string {
	return append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "attack",
		"content-type", "application/grpc", "te", "trailers", "grpc-timeout", "1S"}, more...)
}

// open begins a call and returns its stream.
func (w *wire) open(fields ...string) uint32 {
	id := w.next
	w.next += 2
	_ = w.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block(fields...), EndHeaders: true})
	return id
}

// call sends a whole call.
func (w *wire) call(body []byte, fields ...string) {
	_ = w.fr.WriteData(w.open(fields...), true, body)
}

// prefixed puts gRPC's prefix in front of a message.
func prefixed(compressed byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{compressed}, uint32(len(message))), message...)
}

// request encodes a RateLimitRequest with one descriptor, and fill bytes of a
// field that nobody knows.
func request(key, value string, fill int) []byte {
	entry := field(field(nil, 1, []byte(key)), 2, []byte(value))
	b := field(nil, 1, []byte("attack"))
	b = field(b, 2, field(nil, 1, entry))
	if fill > 0 {
		b = field(b, 1000, make([]byte, fill))
	}
	return b
}

func field(b []byte, num protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), value)
}

func zipped(message []byte) []byte {
	var b bytes.Buffer
	zw, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = zw.Write(message) // into memory
	_ = zw.Close()
	return b.Bytes()
}

// waitUntil waits for something that the server may never do.
func waitUntil(limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}
