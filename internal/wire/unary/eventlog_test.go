package unary

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestEveryAnswerIsCounted counts by code, also what is answered before a
// handler runs.
func TestEveryAnswerIsCounted(t *testing.T) {
	t.Parallel()
	s, addr := start(t, func(conf *Config) { conf.MaxMessageSize, conf.MaxHeaderListSize = 1000, 4000 })
	p := newPeer(t, addr)
	want := map[string]int{}
	answered := func(id uint32) {
		p.flush()
		a := p.answer(id)
		if a.status == "" {
			t.Fatalf("no answer: %+v", a)
		}
		want[a.status]++
	}
	whole := func(fields []string, body []byte) {
		id := p.open(false, fields...)
		p.must(p.fr.WriteData(id, true, body))
		answered(id)
	}
	hello := grpcMessage([]byte("hello"))
	whole(callHeaders(methodEcho), hello)
	whole(callHeaders(methodFail), hello)
	whole(callHeaders("/no.Such/Method"), hello)
	whole(callHeaders(methodEcho, "large", strings.Repeat("l", 5000)), hello)
	whole(callHeaders(methodEcho), grpcMessage(make([]byte, 2000)))
	whole(callHeaders(methodEcho), nil)
	whole(callHeaders(methodEcho, "grpc-encoding", "zstd"), hello)
	whole([]string{":method", "GET", ":scheme", "http", ":path", methodEcho}, nil)
	whole([]string{":method", "POST", ":scheme", "http", ":path", methodEcho, "content-type", "text/plain"}, nil)
	whole([]string{":method", "POST", ":scheme", "http", ":path", methodEcho, "content-type", "application/grpc",
		"grpc-timeout", "x"}, hello)
	whole([]string{":method", "POST", ":scheme", "http", ":path", methodWorker, "content-type", "application/grpc",
		"grpc-timeout", "1n"}, hello)
	got := map[string]int{}
	for code, n := range s.Stats().Codes {
		if n > 0 {
			got[strconv.Itoa(code)] = int(n)
		}
	}
	if len(want) < 6 || len(got) != len(want) {
		t.Errorf("counted %v, answered %v", got, want)
	}
	for code, n := range want {
		if got[code] != n {
			t.Errorf("code %s: counted %d, answered %d", code, got[code], n)
		}
	}
}

// TestRefusalsAreLogged floods a server with what it refuses: each kind is
// logged, in a line a second at most, that says how many others there were.
func TestRefusalsAreLogged(t *testing.T) {
	t.Parallel()
	var log lines
	s, addr := start(t, func(conf *Config) {
		conf.Log = slog.New(slog.NewTextHandler(&log, nil))
		conf.MaxConcurrentStreams, conf.MaxConnections, conf.ReadTimeout = 5, 2, 300*time.Millisecond
	})
	p, other := newPeer(t, addr), newPeer(t, addr)
	p.answerNow(methodEcho, "in use")
	other.answerNow(methodEcho, "in use")
	for range 305 {
		p.open(false, callHeaders(methodEcho)...)
	}
	p.flush()
	for range 20 {
		expectClosed(t, rawPeer(t, addr).nc)
	}
	eventually(t, "calls are refused", func() bool { return s.Stats().RefusedStreams == 300 })
	for message, want := range map[string]int{"in flight on the connection": 300, "too many are open": 20} {
		eventually(t, "all is logged: "+message, func() bool { return log.count(message) == want })
		if n := log.lines(message); n > 3 {
			t.Errorf("%q is logged %d times: %s", message, n, &log)
		}
	}
	if !strings.Contains(log.String(), "client=127.0.0.1:") {
		t.Errorf("no client is named: %s", &log)
	}
}

// lines is a log.
type lines struct{ testenv.Log }

func (l *lines) lines(message string) int { return strings.Count(l.String(), message) }

// count returns how many events the lines with message stand for.
func (l *lines) count(message string) int {
	total := 0
	for line := range strings.Lines(l.String()) {
		if _, n, ok := strings.Cut(strings.TrimSpace(line), "suppressed="); ok && strings.Contains(line, message) {
			others, _ := strconv.Atoi(n)
			total += 1 + others
		}
	}
	return total
}

// TestCloseIsBounded has a handler that never returns: Close does not wait as
// long as a drain may take.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	s, err := New(Config{
		Handlers: map[string]Handler{methodHang: {Serve: func(context.Context, []*Call) {
			close(began)
			<-release
		}}},
		Grace: time.Hour, CloseTimeout: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(ln)
	p := newPeer(t, ln.Addr().String())
	p.call(methodHang, nil)
	p.flush()
	<-began
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("Close does not say that a handler still runs")
		}
	case <-time.After(10 * time.Second):
		t.Error("Close waits for the handler")
	}
	close(release)
}
