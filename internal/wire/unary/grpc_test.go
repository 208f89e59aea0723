package unary

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/test/testenv"
)

// These tests are what a grpc-go client sees.

func TestCallsOfAllSizesAreAnswered(t *testing.T) {
	_, addr := start(t, nil)
	cc := dial(t, addr)
	for _, method := range []string{methodEcho, methodWorker} {
		for _, request := range []string{"", "a", strings.Repeat("x", 5000), strings.Repeat("y", 200_000)} {
			got, err := invoke(cc, method, request)
			if err != nil || got != request {
				t.Errorf("%s of %d bytes: %d bytes, %v", method, len(request), len(got), err)
			}
		}
	}
	if got, err := invoke(cc, methodBig, "250000"); err != nil || len(got) != 250_000 {
		t.Errorf("big answer: %d bytes, %v", len(got), err)
	}
}

func TestFailuresReachTheClient(t *testing.T) {
	_, addr := start(t, nil)
	cc := dial(t, addr)
	text := "100 % wrong: \"ü\"\n\x00"
	for _, c := range []struct {
		method, request string
		code            codes.Code
		message         string
	}{
		{methodFail, text, codes.InvalidArgument, text},
		{methodFail, "", codes.InvalidArgument, ""},
		{"/test.Test/None", "", codes.Unimplemented, "unknown method /test.Test/None; it may be served on port 8082"},
		{methodEcho, strings.Repeat("x", 256<<10+1), codes.ResourceExhausted,
			"received message larger than max (262145 vs. 262144)"},
	} {
		_, err := invoke(cc, c.method, c.request)
		if got := status.Convert(err); got.Code() != c.code || got.Message() != c.message {
			t.Errorf("%s: %v %q, want %v %q", c.method, got.Code(), got.Message(), c.code, c.message)
		}
	}
	if got, err := invoke(cc, methodEcho, "still alive"); got != "still alive" {
		t.Error(got, err)
	}
}

// A handler that asks for them answers calls whose message is too large, in the server's own
// time: their bytes are not kept.
func TestHandlerAnswersTooLargeMessages(t *testing.T) {
	for _, inline := range []bool{true, false} {
		answer := func(_ context.Context, calls []*Call) []*Call {
			for _, c := range calls {
				c.Reply = fmt.Appendf(c.Reply, "%t %d", c.TooLarge, len(c.Message))
			}
			return nil
		}
		s, addr := start(t, func(c *Config) {
			h := Handler{TooLarge: true, Inline: answer}
			if !inline {
				h = Handler{TooLarge: true, Serve: func(ctx context.Context, calls []*Call) { answer(ctx, calls) }}
			}
			c.Handlers = map[string]Handler{methodEcho: h}
			c.MaxMessageSize, c.MaxHeld = 64<<10, 1<<20
		})
		cc := dial(t, addr)
		for size, want := range map[int]string{64 << 10: "false 65536", 64<<10 + 1: "true 0", 8 << 20: "true 0",
			3: "false 3"} {
			if got, err := invoke(cc, methodEcho, strings.Repeat("x", size)); got != want || err != nil {
				t.Errorf("inline %t, %d bytes: %q, %v; want %q", inline, size, got, err, want)
			}
		}
		if n := s.Stats().Buffered; n > 64<<10 {
			t.Errorf("%d bytes are kept", n)
		}
	}
}

// TestUnknownStreamsFailAtOnce shows that a client that calls a stream learns at once that it
// is not here, although it has not ended its request.
func TestUnknownStreamsFailAtOnce(t *testing.T) {
	_, addr := start(t, nil)
	cc := dial(t, addr)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := cc.NewStream(ctx, both, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
	if err != nil {
		t.Fatal(err)
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); status.Code(err) != codes.Unimplemented {
		t.Errorf("unknown stream: %v", err)
	}

	for _, messages := range []int{0, 2} {
		stream, err := cc.NewStream(ctx, both, methodEcho)
		if err != nil {
			t.Fatal(err)
		}
		for range messages {
			message := []byte("one")
			_ = stream.SendMsg(&message) // the second may find the stream ended
		}
		_ = stream.CloseSend()
		if err := stream.RecvMsg(&answer); status.Code(err) != codes.Internal {
			t.Errorf("%d messages: %v", messages, err)
		}
	}
}

func TestGzipIsReadUpToTheBound(t *testing.T) {
	t.Parallel()
	_, addr := start(t, nil)
	cc := dial(t, addr)
	request := strings.Repeat("abc", 50_000)
	if got, err := invoke(cc, methodEcho, request, grpc.UseCompressor(gzip.Name)); err != nil || got != request {
		t.Errorf("gzip: %d bytes, %v", len(got), err)
	}
	_, err := invoke(cc, methodEcho, strings.Repeat("0", 10<<20), grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("10 MiB in a few KiB: %v", err)
	}
}

func TestMetadataReachesTheHandler(t *testing.T) {
	_, addr := start(t, nil)
	cc := dial(t, addr)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	large := strings.Repeat("m", 20_000)
	got, err := invokeContext(metadata.AppendToOutgoingContext(ctx, "x-one", "1", "x-other", large, "x-two", "2", "x-two",
		"zwei"), cc, methodMeta, "")
	if want := `["1" "2,zwei" ""]`; got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	for range 3 { // with entries of the tables, and nothing left over
		if got, err := invokeContext(metadata.AppendToOutgoingContext(ctx, "x-one", "1"), cc, methodMeta,
			""); got != `["1" "" ""]` {
			t.Error(got, err)
		}
	}
}

func TestDeadlineAndCancel(t *testing.T) {
	s, addr := start(t, nil)
	cc := dial(t, addr)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := invokeContext(ctx, cc, methodHang, ""); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := invokeContext(ctx, cc, methodHang, ""); status.Code(err) != codes.Canceled {
		t.Errorf("cancel: %v", err)
	}
	eventually(t, "both calls are known to be cancelled", func() bool { return s.Stats().Cancelled == 2 })
}

// TestDeadlineIsTold compares the deadline that a handler sees with the
// client's.
func TestDeadlineIsTold(t *testing.T) {
	got := make(chan time.Time, 1)
	_, addr := start(t, func(conf *Config) {
		conf.Handlers[methodEcho] = Handler{Inline: func(_ context.Context, calls []*Call) []*Call {
			got <- calls[0].Deadline
			return nil
		}}
	})
	cc := dial(t, addr)
	for _, timeout := range []time.Duration{0, 3 * time.Second, 100 * time.Hour} {
		ctx, cancel := context.WithCancel(context.Background())
		var want time.Time
		if timeout > 0 {
			ctx, cancel = context.WithTimeout(context.Background(), timeout)
			want, _ = ctx.Deadline()
		}
		if _, err := invokeContext(ctx, cc, methodEcho, ""); err != nil {
			t.Fatal(err)
		}
		deadline := <-got
		if deadline.IsZero() != (timeout == 0) || deadline.Sub(want).Abs() > time.Second {
			t.Errorf("timeout %v: deadline %v, want %v", timeout, deadline, want)
		}
		cancel()
	}
}

func TestConcurrentCallsGetTheirOwnAnswers(t *testing.T) {
	s, addr := start(t, nil)
	cc := dial(t, addr)
	const clients, each = 64, 200
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			method := []string{methodEcho, methodWorker}[i%2]
			for j := range each {
				request := fmt.Sprint(i, j, strings.Repeat("z", j*7))
				if got, err := invoke(cc, method, request); got != request || err != nil {
					t.Errorf("%q: %q, %v", request, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := s.Stats(); got.Answered != clients*each || got.Failed != 0 || got.Buffered != 0 {
		t.Errorf("%+v", got)
	}
}

func TestUnixSocketServesCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	startOn(t, ln, nil)
	if got, err := invoke(dial(t, "unix:"+path), methodEcho, "hello"); got != "hello" {
		t.Error(got, err)
	}
}

func TestTLS(t *testing.T) {
	certs := testenv.TestCerts(t)
	conf := certs.ServerTLS(t, true)
	conf.NextProtos = []string{"h2"}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := startOn(t, plain, func(c *Config) { c.TLS, c.ReadTimeout = conf, 300*time.Millisecond })
	addr := plain.Addr().String()
	cc := dial(t, addr, grpc.WithTransportCredentials(credentials.NewTLS(certs.ClientTLS(t))))
	for _, method := range []string{methodEcho, methodWorker} {
		if got, err := invoke(cc, method, "hello"); got != "hello" {
			t.Error(got, err)
		}
	}

	// A client without ALPN, and one that says nothing.
	other := certs.ClientTLS(t)
	other.NextProtos = nil
	if nc, err := tls.Dial("tcp", addr, other); err == nil {
		expectClosed(t, nc)
	}
	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	expectClosed(t, silent)
	if got, err := invoke(cc, methodEcho, "hello"); got != "hello" {
		t.Error(got, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// TestDrainFailsNoCall restarts the server repeatedly under load. No call may fail:
// grpc-go repeats those that a GOAWAY leaves out, and only those.
func TestDrainFailsNoCall(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	s := startOn(t, ln, nil)
	cc := dial(t, addr)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 16 {
		method := []string{methodEcho, methodWorker}[i%2]
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := invoke(cc, method, "hello", grpc.WaitForReady(true)); got != "hello" {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
		})
	}
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := s.Shutdown(ctx); err != nil {
			t.Error("shutdown:", err)
		}
		cancel()
		if ln, err = net.Listen("tcp", addr); err != nil {
			t.Fatal(err)
		}
		s = startOn(t, ln, nil)
	}
	close(stop)
	wg.Wait()
}

// TestAgedConnectionsFailNoCall is the same for connections that are drained one by one.
func TestAgedConnectionsFailNoCall(t *testing.T) {
	t.Parallel()
	s, addr := start(t, func(conf *Config) { conf.MaxConnectionAge = 50 * time.Millisecond })
	cc := dial(t, addr)
	until := time.Now().Add(time.Second)
	for time.Now().Before(until) {
		if got, err := invoke(cc, methodWorker, "hello"); got != "hello" {
			t.Fatal(got, err)
		}
	}
	if n := s.Stats().Accepted; n < 5 {
		t.Errorf("%d connections in 1 s, want at least 5", n)
	}
}

func TestOverloadRefusesOnlyQueuedCalls(t *testing.T) {
	s, addr := start(t, func(conf *Config) { conf.Workers, conf.QueueLimit = 1, 2 })
	cc := dial(t, addr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for n := range 3 {
		wg.Go(func() { _, _ = invokeContext(ctx, cc, methodHang, "") })
		eventually(t, "the call is with the worker, or waits", func() bool {
			q := &s.workers.queue
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.served == 1 && q.calls == n
		})
	}
	if _, err := invoke(cc, methodWorker, ""); status.Code(err) != codes.Unavailable {
		t.Errorf("with a full queue: %v", err)
	}
	if got, err := invoke(cc, methodEcho, "hello"); got != "hello" {
		t.Error("inline, with a full queue:", got, err)
	}
	if s.Stats().Shed != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

func TestPanicFailsOnlyItsCall(t *testing.T) {
	_, addr := start(t, func(conf *Config) {
		conf.Handlers["/t.T/A"] = Handler{Inline: func(context.Context, []*Call) []*Call { panic("a") }}
		conf.Handlers["/t.T/B"] = Handler{Serve: func(context.Context, []*Call) { panic("b") }}
	})
	cc := dial(t, addr)
	for _, method := range []string{"/t.T/A", "/t.T/B", "/t.T/A"} {
		if _, err := invoke(cc, method, ""); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
