package redis

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/headgate-rls/headgate/internal/kit/sockio"
)

// go-redis makes room for what a reply announces: thirteen bytes can ask it for 16 GiB, and
// replies nested without end for more stack than Go allows. So replies are bounded before it
// sees them.
const (
	maxReplyItems = 1 << 20  // announced and not there yet; the replies of headgate's commands have thousands
	maxReplyDepth = 32       // replies in replies
	maxReplyText  = 64 << 20 // bytes of one string
	maxReplyLine  = 64 << 10 // bytes of a line, as of a number or an error
)

var (
	errReplyTooLarge  = errors.New("redis: a reply announces more than headgate takes")
	errReplyMalformed = errors.New("redis: a reply has a length that is no number")
)

// begun returns a connection in a new one's place whose reads and writes are cheaper, and whose replies are bounded.
func begun(conn net.Conn, of *beginning) net.Conn {
	conn = sockio.PooledConn(conn)
	bounded := &boundedConn{Conn: conn, beginning: of}
	if s, ok := conn.(syscall.Conn); ok { // by which go-redis looks whether it is alive
		return struct {
			*boundedConn
			syscall.Conn
		}{bounded, s}
	}
	return bounded
}

// A boundedConn fails when a reply exceeds the bounds.
type boundedConn struct {
	net.Conn
	replies   replyScanner
	refusal   string     // the last reply if it was an error, or ""
	beginning *beginning // nil once there was a reply
}

// maxRefusal is how many bytes of a refusal are kept.
const maxRefusal = 100

// Read implements [net.Conn].
func (c *boundedConn) Read(b []byte) (int, error) {
	if c.replies.err != nil {
		return 0, c.replies.err
	}
	if c.beginning != nil && c.beginning.answer != "" {
		return c.beginning.read(b), nil
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.beginning = nil
	}
	if n > 0 && b[0] == '-' && c.replies.between() {
		line, _, _ := bytes.Cut(b[1:min(n, maxRefusal)], []byte("\r"))
		c.refusal = string(line)
	} else if n > 0 {
		c.refusal = ""
	}
	c.replies.take(b[:n])
	if c.replies.err != nil {
		return 0, c.replies.err
	}
	return n, c.why(err)
}

// Write implements [net.Conn].
func (c *boundedConn) Write(b []byte) (int, error) {
	if c.beginning != nil && c.beginning.write(b) {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	return n, c.why(err)
}

// why says more of err. It adds the last error reply: Redis closes a connection after it has refused a client, above
// maxclients for example. The driver ignores the reply to HELLO, and reports only that the next write has failed.
func (c *boundedConn) why(err error) error {
	if err != nil && c.beginning != nil {
		return c.beginning.ended(err)
	}
	if err == nil || c.refusal == "" || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: Redis has closed the connection after it replied %q", err, c.refusal)
}

// A replyScanner follows the structure of replies, in whatever parts they arrive.
type replyScanner struct {
	err  error // once a reply has exceeded the bounds
	text int   // bytes of a string that are still to come

	kind   byte // of the line under way, which is its first byte; 0 between lines
	line   int  // its bytes so far
	length int  // its number so far
	null   bool // its number is negative

	left  [maxReplyDepth]int // items that each reply under way still lacks, the innermost last
	depth int
	items int // the sum of left
}

// between reports whether the next byte begins a reply.
func (s *replyScanner) between() bool { return s.kind == 0 && s.text == 0 && s.depth == 0 }

// take takes what has arrived.
func (s *replyScanner) take(b []byte) {
	for len(b) > 0 && s.err == nil {
		switch {
		case s.text > 0:
			n := min(s.text, len(b))
			b = b[n:]
			if s.text -= n; s.text == 0 {
				s.item()
			}
		case s.kind == 0:
			s.kind, s.line, s.length, s.null = b[0], 0, 0, false
			b = b[1:]
		default:
			end := bytes.IndexByte(b, '\n')
			part := b[:max(end, 0)]
			if end < 0 {
				part = b
			}
			b = b[min(len(part)+1, len(b)):]
			s.part(part)
			if end >= 0 && s.err == nil {
				s.lineEnds()
				s.kind = 0
			}
		}
	}
}

// announces has the kinds of lines that say how much follows.
var announces = [256]bool{'$': true, '=': true, '!': true, '*': true, '~': true, '>': true, '%': true, '|': true}

// part takes a part of a line.
func (s *replyScanner) part(b []byte) {
	if s.line += len(b); s.line > maxReplyLine {
		s.err = errReplyTooLarge
		return
	}
	if !announces[s.kind] {
		return
	}
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			s.length = min(10*s.length+int(c-'0'), maxReplyText+1)
		case c == '-':
			s.null = true
		case c != '\r':
			s.err = errReplyMalformed
			return
		}
	}
}

// lineEnds takes what a line announces.
func (s *replyScanner) lineEnds() {
	switch s.kind {
	case '$', '=', '!':
		switch {
		case s.null:
			s.item()
		case s.length > maxReplyText:
			s.err = errReplyTooLarge
		default:
			s.text = s.length + len("\r\n")
		}
	case '*', '~', '>':
		s.begin(s.length)
	case '%': // keys and values
		s.begin(2 * s.length)
	case '|': // the same, before an item that does not contain it
		if s.depth > 0 {
			s.left[s.depth-1]++
			s.items++
		}
		s.begin(2 * s.length)
	default:
		s.item()
	}
}

// begin begins a reply of n items.
func (s *replyScanner) begin(n int) {
	switch {
	case s.null || n == 0:
		s.item()
	case s.depth == maxReplyDepth || n > maxReplyItems-s.items:
		s.err = errReplyTooLarge
	default:
		s.left[s.depth] = n
		s.depth++
		s.items += n
	}
}

// item notes that an item is complete, and with it perhaps those that it ends.
func (s *replyScanner) item() {
	for s.depth > 0 {
		s.items--
		if s.left[s.depth-1]--; s.left[s.depth-1] > 0 {
			return
		}
		s.depth--
	}
}
