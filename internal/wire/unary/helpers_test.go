package unary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/test/rawcodec"
)

// The methods of the test server.
const (
	methodEcho   = "/test.Test/Echo"   // answers with its request, in the read loop
	methodWorker = "/test.Test/Worker" // the same, in a worker
	methodFail   = "/test.Test/Fail"   // fails with the request as its message
	methodBig    = "/test.Test/Big"    // answers with as many bytes as the request is a number
	methodMeta   = "/test.Test/Meta"   // answers with the metadata it asked for
	methodHang   = "/test.Test/Hang"   // waits until its call is cancelled
)

func echo(_ context.Context, calls []*Call) []*Call {
	for _, c := range calls {
		c.Reply = append(c.Reply, c.Message...)
	}
	return nil
}

// pattern is how the answers of methodBig begin, and go on.
var pattern = func() (all [64 << 10]byte) {
	for i := range all {
		all[i] = byte(i)
	}
	return all
}()

func testHandlers() map[string]Handler {
	return map[string]Handler{
		methodEcho:   {Inline: echo},
		methodWorker: {Serve: func(ctx context.Context, calls []*Call) { echo(ctx, calls) }},
		methodFail: {Inline: func(_ context.Context, calls []*Call) []*Call {
			for _, c := range calls {
				c.Err = &Status{InvalidArgument, string(c.Message)}
			}
			return nil
		}},
		methodBig: {Inline: func(_ context.Context, calls []*Call) []*Call {
			for _, c := range calls {
				var n int
				fmt.Sscan(string(c.Message), &n)
				for ; n > 0; n -= len(pattern) { // byte by byte, the race detector would make this take seconds
					c.Reply = append(c.Reply, pattern[:min(n, len(pattern))]...)
				}
			}
			return nil
		}},
		methodMeta: {Metadata: []string{"x-one", "x-two", "absent"}, Inline: func(_ context.Context, calls []*Call) []*Call {
			for _, c := range calls {
				c.Reply = fmt.Appendf(c.Reply, "%q", c.Metadata)
			}
			return nil
		}},
		methodHang: {Serve: func(ctx context.Context, calls []*Call) {
			for _, c := range calls {
				for !c.Cancelled() && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
			}
		}},
	}
}

// start runs a server on a TCP port of its own until the test ends.
func start(tb testing.TB, change func(*Config)) (*Server, string) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return startOn(tb, ln, change), ln.Addr().String()
}

func startOn(tb testing.TB, ln net.Listener, change func(*Config)) *Server {
	tb.Helper()
	conf := Config{Handlers: testHandlers(), UnknownHint: "it may be served on port 8082",
		Log:          slog.New(slog.NewTextHandler(io.Discard, nil)),
		CloseTimeout: 20 * time.Second}
	if change != nil {
		change(&conf)
	}
	s, err := New(conf)
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) {
			tb.Errorf("Serve: %v", err)
		}
	})
	return s
}

func dial(tb testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{})),
	}, opts...)
	cc, err := grpc.NewClient(target, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cc.Close() })
	return cc
}

func invoke(cc *grpc.ClientConn, method, request string, opts ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return invokeContext(ctx, cc, method, request, opts...)
}

func invokeContext(ctx context.Context, cc *grpc.ClientConn, method, request string,
	opts ...grpc.CallOption) (string, error) {
	in, out := []byte(request), []byte(nil)
	err := cc.Invoke(ctx, method, &in, &out, opts...)
	return string(out), err
}

// expectClosed reads until the other side closes the connection.
func expectClosed(tb testing.TB, nc net.Conn) {
	tb.Helper()
	defer nc.Close()
	if err := nc.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		tb.Fatal(err)
	}
	_, err := io.Copy(io.Discard, nc)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		tb.Error("the connection is still open after 5 s")
	}
}
