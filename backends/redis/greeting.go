package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// A connection begins with HELLO, which the driver sends. Some proxies, such as twemproxy, do not know it, and close
// the connection without an answer. So does what stands before a Redis that is away, and a port that demands TLS. The
// next connection finds out which it is: see greeting.examine. For such a proxy HELLO is answered here instead, as by a
// server that does not know it. The driver then logs in by AUTH.

// A greeting is what is known of how the one address of servers takes HELLO.
type greeting struct {
	silent atomic.Bool // a connection has ended without an answer to it
	plain  atomic.Bool // that is so because the server does not know it
}

// noHello is the answer in the place of a server that does not know HELLO.
const noHello = "-ERR unknown command 'hello'\r\n"

// An unansweredError is that of a connection that ended before the server had answered anything.
type unansweredError struct {
	error
	tls bool // the connection has TLS
}

func (e *unansweredError) Error() string {
	text := e.error.Error() + " (the connection ended before any answer: is a Redis, one that runs, behind this address?"
	if !e.tls {
		text += " If its port demands TLS: rediss:// has it"
	}
	return text + ")"
}

func (e *unansweredError) Unwrap() error { return e.error }

// hungUp reports whether err is that of a connection that the other side has ended.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// A beginning is a connection that has not been answered yet.
type beginning struct {
	of     *greeting // nil where several addresses might differ
	tls    bool
	writes int
	hello  bool   // the first write was HELLO
	answer string // to be read next, in the server's place
}

var helloWord = []byte("\r\nhello\r\n")

// write notes what is written, and reports whether it is answered here.
func (n *beginning) write(b []byte) (answered bool) {
	n.writes++
	if n.writes > 1 {
		return false
	}
	n.hello = bytes.Contains(b[:min(len(b), 32)], helloWord)
	if n.hello && n.of != nil && n.of.plain.Load() {
		n.answer = noHello
		n.writes = 0
	}
	return n.answer != ""
}

// read returns what is answered here.
func (n *beginning) read(b []byte) int {
	read := copy(b, n.answer)
	n.answer = n.answer[read:]
	return read
}

// ended returns the error of a connection that ended with err. If only HELLO was sent, nothing has been done. The
// driver takes one layer off the errors of its HELLO.
func (n *beginning) ended(err error) error {
	if !hungUp(err) {
		return err
	}
	err = &unansweredError{err, n.tls}
	if n.of != nil {
		n.of.silent.Store(true)
	}
	if n.hello && n.writes == 1 {
		return &dialError{&dialError{err}}
	}
	return err
}

// examine finds out on a new connection why one before was not answered: a server that answers PING, but not HELLO,
// does not know HELLO. It uses up the connection, and returns errExamined if it knows.
func (g *greeting) examine(ctx context.Context, conn net.Conn, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	deadline, _ := ctx.Deadline() // it has one
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := answered(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return err
	}
	err := answered(conn, "*2\r\n$5\r\nhello\r\n$1\r\n2\r\n")
	if err != nil && !hungUp(err) {
		return err
	}
	g.plain.Store(err != nil)
	g.silent.Store(false)
	return errExamined
}

var errExamined = errors.New("redis: a new connection is needed")

// errPlain: such a proxy closes the connection on SELECT, and on AUTH with two words.
var errPlain = errors.New("the URL names a user or a database, and a proxy without HELLO, such as twemproxy, has " +
	"neither: leave the user out, and the number after the slash")

// answered sends a command and reads the beginning of its answer.
func answered(conn net.Conn, command string) error {
	if _, err := io.WriteString(conn, command); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1024))
	return err
}

// dial connects to a server or a Sentinel, and finds out what is not known of its address.
func (s *servers) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.dials.Add(1)
	var of *greeting
	if s.cfg.Mode == Standalone {
		of = &s.greeting
	}
	conn, err := s.cfg.connect(ctx, network, address)
	if err == nil && of != nil && of.silent.Load() {
		err = of.examine(ctx, conn, s.cfg.Timeout)
		_ = conn.Close()
		switch {
		case errors.Is(err, errExamined):
			conn, err = s.cfg.connect(ctx, network, address)
		case hungUp(err):
			err = &unansweredError{err, s.cfg.TLS}
		default:
			err = fmt.Errorf("the connection before ended without an answer, and this one is not answered: %w", err)
		}
	}
	if err == nil && of != nil && of.plain.Load() && (s.cfg.DB != 0 || s.cfg.Username != "") {
		_ = conn.Close()
		err = errPlain
	}
	if err != nil {
		return nil, &dialError{err}
	}
	return begun(conn, &beginning{of: of, tls: s.cfg.TLS}), nil
}
