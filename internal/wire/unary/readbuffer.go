package unary

import "io"

// Sizes of a connection's read buffer, in bytes. An idle connection has the small
// one; it doubles while reads fill it, or while a frame does not fit if memory is
// short.
const (
	smallReadBuffer = 1 << 10
	largeReadBuffer = 64 << 10 // more than a frame of the largest size
)

// A readBuffer is the bytes that have arrived on a connection and are not used
// yet. It is the reader of the connection's Framer, which is asked for a frame
// only when all of it is there.
type readBuffer struct {
	buf  []byte
	r, w int  // buf[r:w] has arrived
	full bool // the last read filled buf
}

// fill waits until more has arrived, and takes all of it that fits. Unless generous,
// the buffer grows only for a frame that does not fit.
func (b *readBuffer) fill(from io.Reader, generous bool) (n int, err error) {
	switch {
	case b.r == b.w:
		b.r, b.w = 0, 0
	case b.w == len(b.buf) && b.r > 0:
		b.w = copy(b.buf, b.buf[b.r:b.w])
		b.r = 0
	}
	if (b.full && generous || b.w == len(b.buf)) && len(b.buf) < largeReadBuffer {
		grown := make([]byte, max(2*len(b.buf), smallReadBuffer))
		b.w = copy(grown, b.buf[b.r:b.w])
		b.r, b.buf = 0, grown
	}
	n, err = from.Read(b.buf[b.w:])
	b.w += n
	b.full = b.w == len(b.buf)
	return n, err
}

// bytes returns what has arrived.
func (b *readBuffer) bytes() []byte { return b.buf[b.r:b.w] }

// take returns the next n bytes, which must have arrived. They are valid until
// fill is called.
func (b *readBuffer) take(n int) []byte {
	p := b.buf[b.r : b.r+n]
	b.r += n
	return p
}

// Read makes the buffer a reader of what has arrived.
func (b *readBuffer) Read(p []byte) (int, error) {
	if b.r == b.w {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, b.buf[b.r:b.w])
	b.r += n
	return n, nil
}

// discard drops what has arrived.
func (b *readBuffer) discard() { b.r, b.w, b.full = 0, 0, false }

// trim replaces a large buffer that is empty by a small one.
func (b *readBuffer) trim() {
	if b.r == b.w && len(b.buf) > smallReadBuffer {
		b.buf = make([]byte, smallReadBuffer)
		b.discard()
	}
}
