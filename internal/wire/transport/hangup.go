package transport

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// A proxy that is terminated reports the ends of its requests in flight and
// closes the connection in the same moment. grpc-go cancels the calls of a closed
// connection, and a handler that waits for its message may see the cancellation
// first. So grpc-go learns of the end of a connection only when all calls that
// arrived have their messages.

// settleLimit bounds how long the end of a connection is withheld, because some
// calls may never get their message.
const settleLimit = time.Second

// Listener returns l for a server of which [Register] made s a part and which
// was made with [ReadBeforeEnd].
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &settlingConn{Conn: nc}, nil
}

// A settlingConn withholds its end while handlers wait for messages.
type settlingConn struct {
	net.Conn
	unread atomic.Int64 // calls that have arrived and whose handlers have no message yet
}

func (c *settlingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && err != nil {
		for end := time.Now().Add(settleLimit); c.unread.Load() > 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	return n, err
}

// RemoteAddr is how a handler finds its connection.
func (c *settlingConn) RemoteAddr() net.Addr { return settlingAddr{c.Conn.RemoteAddr(), c} }

type settlingAddr struct {
	net.Addr
	c *settlingConn
}

// Under returns the address of the connection below.
func (a settlingAddr) Under() net.Addr { return a.Addr }

func settling(ctx context.Context) *settlingConn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	addr, _ := p.Addr.(settlingAddr)
	return addr.c
}

// ReadBeforeEnd makes a server hand every call that has arrived to its handler,
// even if the client has closed the connection since. The server needs a
// [Listener]. The option takes the place of [grpc.InTapHandle]: admit is the
// server's own, and may refuse a call.
func ReadBeforeEnd(admit tap.ServerInHandle) grpc.ServerOption {
	// It is called in the goroutine that reads the connection.
	return grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
		ctx, err := admit(ctx, info)
		if err != nil {
			return ctx, err
		}
		if c := settling(ctx); c != nil && served(info.FullMethodName) && ctx.Err() == nil {
			c.unread.Add(1)
		}
		return ctx, nil
	})
}

// countMessageRead notes that the handler of a call has its message, or that the
// message could not be read.
func countMessageRead(ctx context.Context) {
	if c := settling(ctx); c != nil {
		c.unread.Add(-1)
	}
}
