package unary

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A peer is a client made of hand-written frames. What it writes is sent by
// flush, or when there is much of it.
type peer struct {
	tb   testing.TB
	nc   net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
	fr   *http2.Framer
	enc  *hpack.Encoder
	dec  *hpack.Decoder
	head bytes.Buffer
	next uint32 // stream
}

// newPeer connects and exchanges settings.
func newPeer(tb testing.TB, addr string, settings ...http2.Setting) *peer {
	tb.Helper()
	p := rawPeer(tb, addr)
	p.greet(settings...)
	return p
}

// rawPeer connects and says nothing.
func rawPeer(tb testing.TB, addr string) *peer {
	tb.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	return peerOn(tb, nc)
}

// peerOn makes a peer of a connection.
func peerOn(tb testing.TB, nc net.Conn) *peer {
	tb.Helper()
	tb.Cleanup(func() { nc.Close() })
	p := &peer{tb: tb, nc: nc, in: bufio.NewReaderSize(nc, 64<<10), out: bufio.NewWriterSize(nc, 64<<10), next: 1}
	p.fr = http2.NewFramer(p.out, p.in)
	p.fr.AllowIllegalWrites = true
	p.fr.SetReuseFrames()
	p.enc = hpack.NewEncoder(&p.head)
	p.dec = hpack.NewDecoder(4096, nil)
	p.deadline(20 * time.Second)
	return p
}

func (p *peer) deadline(d time.Duration) {
	if err := p.nc.SetDeadline(time.Now().Add(d)); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *peer) greet(settings ...http2.Setting) {
	p.tb.Helper()
	p.write([]byte(http2.ClientPreface))
	p.must(p.fr.WriteSettings(settings...))
	p.flush()
	for acked := false; !acked; {
		f, ok := p.read().(*http2.SettingsFrame)
		acked = ok && f.IsAck()
		if ok && !f.IsAck() {
			p.must(p.fr.WriteSettingsAck())
		}
	}
}

// must ends the test for an error that is not the other side's doing.
func (p *peer) must(err error) {
	p.tb.Helper()
	if err != nil {
		p.tb.Fatal(err)
	}
}

func (p *peer) write(b []byte) {
	p.tb.Helper()
	_, err := p.out.Write(b)
	p.must(err)
}

func (p *peer) flush() {
	p.tb.Helper()
	p.must(p.out.Flush())
}

func (p *peer) read() http2.Frame {
	p.tb.Helper()
	f, err := p.fr.ReadFrame()
	p.must(err)
	return f
}

// block encodes a header block of name and value pairs.
func (p *peer) block(fields ...string) []byte {
	p.head.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.must(p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return p.head.Bytes()
}

func callHeaders(method string, more ...string) []string {
	return append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "test",
		"content-type", "application/grpc", "te", "trailers", "grpc-timeout", "1S"}, more...)
}

// open writes the headers of a call and returns its stream.
func (p *peer) open(end bool, fields ...string) uint32 {
	p.tb.Helper()
	id := p.next
	p.next += 2
	p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(fields...), EndHeaders: true,
		EndStream: end}))
	return id
}

// call writes a whole call and returns its stream.
func (p *peer) call(method string, message []byte) uint32 {
	p.tb.Helper()
	id := p.open(false, callHeaders(method)...)
	p.must(p.fr.WriteData(id, true, grpcMessage(message)))
	return id
}

func grpcMessage(message []byte) []byte {
	return append(appendMessagePrefix(nil, len(message)), message...)
}

// An answer is what came of a stream.
type answer struct {
	http, status, message string
	fields                map[string]string
	body                  []byte
	reset                 http2.ErrCode // if wasReset
	wasReset, goAway      bool
	code                  http2.ErrCode // of GOAWAY
	closed                bool
}

// answer reads until a stream has ended. Frames on other streams are ignored,
// but headers are decoded.
func (p *peer) answer(id uint32) (a answer) {
	p.tb.Helper()
	a.fields = map[string]string{}
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			p.mustBeClosed(err)
			a.closed = true
			return a
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			fields, err := p.dec.DecodeFull(f.HeaderBlockFragment())
			p.must(err)
			if f.StreamID != id {
				continue
			}
			for _, field := range fields {
				a.fields[field.Name] = field.Value
			}
			a.http, a.status, a.message = a.fields[":status"], a.fields["grpc-status"], a.fields["grpc-message"]
			if f.StreamEnded() {
				return a
			}
		case *http2.DataFrame:
			if f.StreamID == id {
				a.body = append(a.body, f.Data()...)
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				a.wasReset, a.reset = true, f.ErrCode
				return a
			}
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				a.goAway, a.code = true, f.ErrCode
				_ = p.nc.(*net.TCPConn).CloseWrite() // or the server would linger
			}
		}
	}
}

// end reads until the server closes the connection, and returns the code of
// its GOAWAY, or false if it sent none.
func (p *peer) end() (http2.ErrCode, bool) {
	p.tb.Helper()
	a := p.answer(0)
	return a.code, a.goAway
}

func (p *peer) mustBeClosed(err error) {
	p.tb.Helper()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		p.tb.Fatal("nothing came, and the connection was not closed")
	}
}
