package unary

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// FuzzFrames feeds a connection whatever bytes there are after a preface, and
// holds it to this: no panic, only well-formed frames in return, answers only
// to streams that were opened and none twice, all memory given back.
func FuzzFrames(f *testing.F) {
	for _, seed := range fuzzSeeds(f) {
		f.Add(seed, uint8(0))
		f.Add(seed, uint8(7))
	}
	conf := Config{
		Handlers: testHandlers(), Workers: 1, MaxMessageSize: 1 << 10, MaxHeaderListSize: 1 << 10, MaxConcurrentStreams: 8,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	delete(conf.Handlers, methodBig) // any number would do
	f.Fuzz(func(t *testing.T, frames []byte, cut uint8) {
		s, err := New(conf)
		if err != nil {
			t.Fatal(err)
		}
		if !s.tasks.enter() {
			t.Fatal("the new server is closed")
		}
		s.tasks.run("worker", s.workers.work)
		nc := &fuzzConn{in: append([]byte(http2.ClientPreface), frames...), cut: int(cut)}
		c := newConn(s.shared, &s.workers, nc, 0)
		s.conns[c] = struct{}{}
		c.serve()
		s.Close()
		for s.workers.queue.waiting() > 0 { // what the worker did not come to
			s.workers.serve(s.workers.queue.pop(0))
		}
		if c.streams.active != 0 || c.streams.incomplete != 0 || c.streams.requestBytes != 0 || s.Stats().Memory != 0 ||
			len(c.streams.open) != 0 {
			t.Errorf("left over: %d active, %d and %d bytes held, %d streams", c.streams.active, c.streams.requestBytes,
				s.Stats().Memory, len(c.streams.open))
		}
		checkOutput(t, nc.out.Bytes(), c.lastID)
	})
}

// checkOutput reads what a server has sent.
func checkOutput(t *testing.T, out []byte, lastID uint32) {
	t.Helper()
	fr := http2.NewFramer(nil, bytes.NewReader(out))
	dec := hpack.NewDecoder(headerTableSize, nil)
	ended := map[uint32]bool{}
	for {
		f, err := fr.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		if err != nil {
			t.Fatalf("the server sent a malformed frame: %v", err)
		}
		id := f.Header().StreamID
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if _, err := dec.DecodeFull(f.HeaderBlockFragment()); err != nil {
				t.Fatalf("the server sent a malformed header block: %v", err)
			}
			if ended[id] || id > lastID || id%2 == 0 {
				t.Fatalf("HEADERS on stream %d, ended %v", id, ended[id])
			}
			ended[id] = f.StreamEnded()
		case *http2.DataFrame:
			if ended[id] || id > lastID {
				t.Fatalf("DATA on stream %d, ended %v", id, ended[id])
			}
		}
	}
}

// A fuzzConn hands out its input in parts of cut bytes, or at once.
type fuzzConn struct {
	net.Conn
	in  []byte
	cut int
	out bytes.Buffer
}

func (nc *fuzzConn) Read(p []byte) (int, error) {
	if len(nc.in) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(nc.in))
	if nc.cut > 0 {
		n = min(n, nc.cut)
	}
	copy(p, nc.in[:n])
	nc.in = nc.in[n:]
	return n, nil
}

// Write is called by one goroutine at a time; that is part of the test.
func (nc *fuzzConn) Write(p []byte) (int, error) { return nc.out.Write(p) }
func (nc *fuzzConn) Close() error                { return nil }
func (nc *fuzzConn) RemoteAddr() net.Addr        { return &net.TCPAddr{} }

// fuzzSeeds are sequences of frames that do something.
func fuzzSeeds(tb testing.TB) (seeds [][]byte) {
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	for _, write := range []func(fr *http2.Framer, open func(id uint32, end bool, fields ...string)){
		func(fr *http2.Framer, open func(uint32, bool, ...string)) {
			open(1, false, callHeaders(methodEcho)...)
			must(fr.WriteData(1, true, grpcMessage([]byte("hello"))))
			open(3, false, callHeaders(methodWorker)...)
			must(fr.WriteData(3, false, grpcMessage([]byte("hello"))))
			must(fr.WriteRSTStream(3, http2.ErrCodeCancel))
			must(fr.WriteData(3, true, nil))
		},
		func(fr *http2.Framer, open func(uint32, bool, ...string)) {
			open(1, true, callHeaders("/a/b")...)
			open(3, true, ":method", "GET", ":path", "/", ":scheme", "http")
			open(5, false, callHeaders(methodMeta, "x-one", "1", "grpc-encoding", "gzip")...)
			must(fr.WriteDataPadded(5, false, grpcMessage(nil), make([]byte, 3)))
			open(5, true, "a", "trailer")
		},
		func(fr *http2.Framer, open func(uint32, bool, ...string)) {
			must(fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3},
				http2.Setting{ID: http2.SettingHeaderTableSize, Val: 104}))
			open(1, false, callHeaders(methodFail)...)
			must(fr.WriteData(1, true, grpcMessage([]byte("no"))))
			open(3, false, callHeaders(methodEcho)...)
			must(fr.WriteData(3, true, grpcMessage([]byte("hello"))))
			must(fr.WriteWindowUpdate(3, 2))
			must(fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			must(fr.WriteWindowUpdate(3, 100))
			must(fr.WriteWindowUpdate(0, 100))
		},
		func(fr *http2.Framer, open func(uint32, bool, ...string)) {
			must(fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83, 0x86},
				Priority: http2.PriorityParam{StreamDep: 3}}))
			must(fr.WriteContinuation(1, true, []byte{0x84}))
			must(fr.WritePing(false, [8]byte{1}))
			must(fr.WritePriority(9, http2.PriorityParam{Weight: 1}))
			must(fr.WriteRawFrame(0x55, 1, 1, []byte("x")))
			must(fr.WriteGoAway(0, http2.ErrCodeNo, nil))
			open(3, false, callHeaders(methodEcho)...)
		},
	} {
		var b, head bytes.Buffer
		fr, enc := http2.NewFramer(&b, nil), hpack.NewEncoder(&head)
		must(fr.WriteSettings())
		write(fr, func(id uint32, end bool, fields ...string) {
			head.Reset()
			for i := 0; i < len(fields); i += 2 {
				must(enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
			}
			must(fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true,
				EndStream: end}))
		})
		seeds = append(seeds, b.Bytes())
	}
	return seeds
}

// FuzzDecode holds the reading of messages to their bounds.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 'x'}, false)
	f.Add([]byte{1, 0, 0, 0, 1, 'x'}, true)
	f.Fuzz(func(t *testing.T, body []byte, gzip bool) {
		const limit = 100
		st := newStream(1, nil)
		defer st.recycle()
		st.gzip = gzip
		if st.add(body, limit) != nil || st.decode(limit, limit) != nil {
			return
		}
		if len(st.call.Message) > limit {
			t.Errorf("%d bytes", len(st.call.Message))
		}
		if body[0] == 0 && int(binary.BigEndian.Uint32(body[1:])) != len(st.call.Message) {
			t.Errorf("%d bytes of %x", len(st.call.Message), body)
		}
	})
}
