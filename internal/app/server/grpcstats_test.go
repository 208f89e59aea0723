package server

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// TestConnectionsAreBounded: a connection above the bound is closed at once, and one
// that ends makes room.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := newBoundListener(inner, 1, memory.NewPool(1<<20))
	accepted := make(chan net.Conn, 3)
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- nc
		}
	}()
	dial := func() net.Conn {
		nc, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}
	dial()
	first := <-accepted
	first.(*boundConn).used.Store(time.Now().Add(time.Hour).UnixNano()) // it is in use
	second := dial()
	_ = second.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := second.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the second connection reads %v, want that it is closed", err)
	}
	first.Close()
	first.Close() // as grpc-go may
	dial()
	select {
	case <-accepted:
	case <-time.After(10 * time.Second):
		t.Error("no connection is accepted after one has ended")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.open); n != 1 || l.refused.Value() != 1 {
		t.Errorf("%d connections are counted and %d refused, want 1 and 1", n, l.refused.Value())
	}
}

// TestCallsOfAllConnectionsAreBounded: above the bound a connection that has its share
// is refused, another is not, and calls that end make room.
func TestCallsOfAllConnectionsAreBounded(t *testing.T) {
	const share, most = 4, 8
	b := newGRPCStats("grpc", newMetrics("test"), new(boundListener), most)
	connect := func() context.Context {
		ctx := b.TagConn(t.Context(), &stats.ConnTagInfo{})
		b.HandleConn(ctx, &stats.ConnBegin{})
		return ctx
	}
	greedy, other := connect(), connect()
	ctx, end := context.WithCancel(greedy)
	for range most {
		if _, err := b.admit(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.admit(greedy, nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a call above the bound and the share: %v, want ResourceExhausted", err)
	}
	otherCtx, endOther := context.WithCancel(other)
	for range share {
		if _, err := b.admit(otherCtx, nil); err != nil {
			t.Errorf("a call within the share of a connection: %v", err)
		}
	}
	if _, err := b.admit(other, nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a call above the other connection's share: %v, want ResourceExhausted", err)
	}
	end()
	endOther()
	for until := time.Now().Add(10 * time.Second); b.calls.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d calls are counted after they have ended", b.calls.Load())
		}
	}
	if _, err := b.admit(greedy, nil); err != nil {
		t.Errorf("a call after they have ended: %v", err)
	}
}
