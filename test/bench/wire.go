package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A wire is a gRPC client on one connection that does nothing but start calls
// on schedule and note when the answers come: it takes little time itself, so
// that the load is not what is measured.
type wire struct {
	conn     net.Conn
	requests [][]byte

	mu       sync.Mutex // guards what follows
	changed  *sync.Cond
	out      *bufio.Writer
	framer   *http2.Framer
	window   int // bytes that may be sent
	inFlight int
	most     int // calls in flight
	ended    bool
}

func dialWire(addr string, requests [][]byte, until time.Time) (*wire, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, requests: requests, out: bufio.NewWriterSize(conn, 64<<10), window: 65535,
		most: maxOpen / connections}
	w.changed = sync.NewCond(&w.mu)
	w.framer = http2.NewFramer(w.out, bufio.NewReaderSize(conn, 64<<10))
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err1 := w.out.WriteString(http2.ClientPreface)
	err2 := w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	err3 := w.framer.WriteWindowUpdate(0, 1<<30) // answers never wait for more
	return w, errors.Join(err1, err2, err3, w.out.Flush(), conn.SetDeadline(until))
}

// header returns the headers of the first call, which fill the server's table,
// and those of the others, which refer to it. They are those of Envoy 1.40, which
// never puts the path into the table.
func header() (first, others []byte) {
	var buf bytes.Buffer
	enc := hpack.NewEncoder(&buf)
	encode := func() []byte {
		buf.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":path", Value: rls.RateLimitService_ShouldRateLimit_FullMethodName,
				Sensitive: true},
			{Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "bench"}, {Name: "te", Value: "trailers"},
			{Name: "grpc-timeout", Value: "5000m"}, {Name: "content-type", Value: "application/grpc"},
			{Name: "x-envoy-internal", Value: "true"}, {Name: "x-forwarded-for", Value: "10.0.0.2"},
			{Name: "x-envoy-expected-rq-timeout-ms", Value: "5000"},
		} {
			_ = enc.WriteField(f) // a Buffer takes everything
		}
		return bytes.Clone(buf.Bytes())
	}
	return encode(), encode()
}

// send starts call i at start + i*every, for all of n, unless the connection
// ends before.
func (w *wire) send(start time.Time, every time.Duration, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	block, others := header()
	for i := range n {
		if wait := time.Until(start.Add(time.Duration(i) * every)); wait > 0 {
			if w.out.Flush() != nil {
				return
			}
			w.mu.Unlock()
			pause(wait)
			w.mu.Lock()
		}
		for (w.inFlight >= w.most || w.window < w.size(i)) && !w.ended {
			_ = w.out.Flush()
			w.changed.Wait()
		}
		if w.ended || w.write(i, block) != nil {
			return
		}
		block = others
		w.inFlight++
	}
	_ = w.out.Flush() // the reader sees what is wrong
}

// size returns how many bytes of the send window call i takes.
func (w *wire) size(i int) int { return messagePrefix + len(w.requests[i%len(w.requests)]) }

// messagePrefix is the size of what gRPC puts before each message.
const messagePrefix = 5

// write queues call i, whose header block is given.
func (w *wire) write(i int, block []byte) error {
	req := w.requests[i%len(w.requests)]
	msg := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(req))), req...)
	id := uint32(2*i + 1)
	w.window -= len(msg)
	return errors.Join(
		w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}),
		w.framer.WriteData(id, true, msg))
}

// receive calls done for each of n calls that ends.
func (w *wire) receive(n int, done func(call int, ok bool)) error {
	defer w.end()
	for n > 0 {
		call, ok, ended, err := w.next()
		if err != nil {
			return err
		}
		if ended {
			done(call, ok)
			n--
		}
	}
	return nil
}

// next reads a frame. It returns whether a call has ended by it, which, and
// whether it is a success.
func (w *wire) next() (call int, ok, ended bool, err error) {
	f, err := w.framer.ReadFrame()
	if err != nil {
		return 0, false, false, err
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		ended = f.StreamEnded()
		for _, h := range f.Fields {
			ok = ok || h.Name == "grpc-status" && h.Value == "0"
		}
	case *http2.RSTStreamFrame:
		ended = true
	case *http2.GoAwayFrame:
		return 0, false, false, fmt.Errorf("the server says %v", f.ErrCode)
	}
	return int(f.Header().StreamID / 2), ok, ended, w.note(f, ended)
}

// note keeps the connection's state and answers what has to be.
func (w *wire) note(f http2.Frame, ended bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ended {
		w.inFlight--
		w.changed.Signal()
	}
	switch f := f.(type) {
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			w.window += int(f.Increment)
			w.changed.Signal()
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if v, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
			w.most = min(w.most, int(v))
		}
		return errors.Join(w.framer.WriteSettingsAck(), w.out.Flush())
	case *http2.PingFrame:
		if !f.IsAck() {
			return errors.Join(w.framer.WritePing(true, f.Data), w.out.Flush())
		}
	}
	return nil
}

func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.changed.Signal()
}
