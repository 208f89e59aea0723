package unary

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
)

const methodOpen = "/test.Test/Open" // answers, and keeps the call open

// TestOpenCalls: a connection keeps a few answered calls open, which hold up neither other calls nor a drain, nor keep
// its place when others need it.
func TestOpenCalls(t *testing.T) {
	s, addr := start(t, func(c *Config) {
		c.Handlers[methodOpen] = Handler{Inline: func(ctx context.Context, calls []*Call) []*Call {
			echo(ctx, calls)
			for _, call := range calls {
				call.Open = true
			}
			return nil
		}}
	})
	cc := dial(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	open := func(ctx context.Context) grpc.ClientStream {
		t.Helper()
		cs, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, methodOpen)
		if err != nil {
			t.Fatal(err)
		}
		in, out := []byte("hello"), []byte(nil)
		if err := errors.Join(cs.SendMsg(&in), cs.CloseSend(), cs.RecvMsg(&out)); err != nil || string(out) != "hello" {
			t.Fatalf("the first message is %q, %v", out, err)
		}
		return cs
	}
	ended := func(cs grpc.ClientStream) error { return cs.RecvMsg(new([]byte)) }

	leaves, stop := context.WithCancel(ctx)
	for range maxKept {
		open(leaves)
	}
	if err := ended(open(ctx)); err != io.EOF {
		t.Errorf("one call more than may stay open: %v, want its end", err)
	}
	stop()
	var stays grpc.ClientStream
	ends := make(chan error, 1)
	for end := time.Now().Add(10 * time.Second); ; { // until the server knows that those have left
		stays = open(ctx)
		go func() { ends <- ended(stays) }()
		select {
		case err := <-ends:
			if err != io.EOF || time.Now().After(end) {
				t.Fatalf("no call stays open after others have ended: %v", err)
			}
			continue
		case <-time.After(200 * time.Millisecond):
		}
		break
	}
	if reply, err := invoke(cc, methodWorker, "x"); err != nil || reply != "x" {
		t.Errorf("beside an open call: %q, %v", reply, err)
	}
	time.Sleep(idleAfter + 100*time.Millisecond)
	s.mu.Lock()
	for c := range s.conns {
		if _, idle := c.lastUsed(time.Now()); !idle {
			t.Error("a connection with nothing but an open call does not count as idle")
		}
	}
	s.mu.Unlock()
	began := time.Now()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-ends; err != io.EOF {
		t.Errorf("a drain ends an open call with %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("an open call holds up the drain for %v", took)
	}
}
