// 386 has one system call for all that is done with sockets.
//go:build !386

package sockio

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// A socket is a connection of package net.
type socket interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// A conn is a socket with reads and writes of its own. All else is the socket's, deadlines too.
type conn struct {
	socket
	raw         syscall.RawConn
	read, write transfer
}

// Conn returns a connection in nc's place that reads and writes on nc's socket. Where nc is no TCP
// or Unix socket of package net, that is nc itself.
func Conn(nc net.Conn) net.Conn {
	var s socket
	switch nc := nc.(type) {
	case *net.TCPConn:
		s = nc
	case *net.UnixConn:
		s = nc
	default:
		return nc
	}
	raw, err := s.SyscallConn()
	if err != nil { // it is closed
		return nc
	}
	c := &conn{socket: s, raw: raw}
	c.read.init(syscall.SYS_READ)
	c.write.init(syscall.SYS_WRITE)
	return c
}

// PooledConn is [Conn] for a pool that checks by SyscallConn whether an idle connection is still
// open, as go-redis does. RawConn.Read calls the pool's function only if there is something to
// read: bytes, an error or the end.
func PooledConn(nc net.Conn) net.Conn {
	if c, ok := Conn(nc).(*conn); ok {
		return pooled{c}
	}
	return nc
}

type pooled struct{ *conn }

// SyscallConn implements [syscall.Conn].
func (p pooled) SyscallConn() (syscall.RawConn, error) { return unread{p.raw}, nil }

type unread struct{ syscall.RawConn }

// Read calls f unless a read would have to wait.
func (u unread) Read(f func(fd uintptr) (done bool)) error {
	return u.RawConn.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1,
			syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		return errno == syscall.EAGAIN || f(fd)
	})
}

// A transfer is a read or a write, of which there is one at a time.
type transfer struct {
	mu  sync.Mutex
	try func(fd uintptr) (done bool)

	// of the one under way
	b   []byte
	n   int
	err error
}

// init makes the function that the poller calls, once for all transfers of a connection.
func (t *transfer) init(number uintptr) {
	t.try = func(fd uintptr) bool {
		for {
			n, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.b))), uintptr(len(t.b)))
			switch errno {
			case 0:
				t.n, t.err = int(n), nil
				return true
			case syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				t.n, t.err = 0, errno
				return true
			}
		}
	}
}

// once moves some of b, when the poller says that it can be moved.
func (t *transfer) once(b []byte, wait func(try func(fd uintptr) bool) error) (n int, err error) {
	t.b = b
	err = wait(t.try)
	t.b = nil
	if err != nil {
		return 0, err
	}
	return t.n, t.err
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	n, err := c.read.once(b, c.raw.Read)
	switch {
	case err != nil:
		return 0, c.failed("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// maxWrite bounds the bytes of one system call, which the scheduler waits for.
const maxWrite = 64 << 10

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (written int, err error) {
	c.write.mu.Lock()
	defer c.write.mu.Unlock()
	for written < len(b) {
		n, err := c.write.once(b[written:min(len(b), written+maxWrite)], c.raw.Write)
		if err != nil {
			return written, c.failed("write", err)
		}
		written += n
	}
	return written, nil
}

// failed returns the error that package net would return.
func (c *conn) failed(op string, err error) error {
	var errno syscall.Errno
	var raw *net.OpError
	switch {
	case errors.As(err, &errno):
		err = os.NewSyscallError(op, errno)
	case errors.As(err, &raw):
		err = raw.Err
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
