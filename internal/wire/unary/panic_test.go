package unary

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// A brokenLog panics when it is first told of a panic: so a panic of a handler
// becomes one outside the handler's guard.
type brokenLog struct{ told atomic.Bool }

func (l *brokenLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *brokenLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *brokenLog) WithGroup(string) slog.Handler            { return l }
func (l *brokenLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "panic" && l.told.CompareAndSwap(false, true) {
		panic("the log is broken")
	}
	return nil
}

// wantNoMemory waits until the server keeps nothing for any call.
func wantNoMemory(t *testing.T, s *Server) {
	t.Helper()
	eventually(t, "no connection is open", func() bool { return s.Stats().Connections == 0 })
	eventually(t, "no memory is counted", func() bool { return s.Stats().Memory == 0 && s.Stats().Buffered == 0 })
}

// TestPanicOfAWorkerFailsItsCalls has a worker panic outside the handler's guard:
// its calls fail, the next are served, and no memory is kept.
func TestPanicOfAWorkerFailsItsCalls(t *testing.T) {
	t.Parallel()
	const method = "/t.T/Panic"
	panics := func([]*Call) { panic("a fault") }
	for name, h := range map[string]Handler{
		"served": {Serve: func(_ context.Context, calls []*Call) { panics(calls) }},
		"shed":   {Inline: func(_ context.Context, calls []*Call) []*Call { return calls }, Shed: panics}, // has no Serve
	} {
		t.Run(name, func(t *testing.T) {
			s, addr := start(t, func(conf *Config) {
				conf.Workers, conf.Log = 1, slog.New(new(brokenLog))
				conf.Handlers[method] = h
			})
			p := newPeer(t, addr)
			var ids []uint32
			for range 10 {
				ids = append(ids, p.call(method, make([]byte, 10_000)))
			}
			p.flush()
			for _, id := range ids {
				if a := p.answer(id); a.status != "13" {
					t.Fatalf("a call whose handler panics: %+v, want INTERNAL", a)
				}
			}
			if a := p.answerNow(methodWorker, "x"); a.status != "0" {
				t.Errorf("the next call: %+v", a)
			}
			p.nc.Close()
			wantNoMemory(t, s)
		})
	}
}

// TestPanicOfTheReadLoopKeepsNoMemory has a handler break its contract so that the
// read loop panics, with calls in its hands and others that are complete. The
// connection is closed and no memory is kept.
func TestPanicOfTheReadLoopKeepsNoMemory(t *testing.T) {
	t.Parallel()
	const method = "/t.T/Nil"
	s, addr := start(t, func(conf *Config) {
		conf.Handlers[method] = Handler{Inline: func(context.Context, []*Call) []*Call { return []*Call{nil} }}
	})
	p := newPeer(t, addr)
	for range 5 {
		p.call(method, make([]byte, 3000))
		p.call(methodEcho, make([]byte, 3000))
	}
	p.flush()
	if _, goAway := p.end(); goAway {
		t.Error("the client is blamed")
	}
	wantNoMemory(t, s)
}

// TestPanicOfUndoHarmsNobody has a handler whose undo functions panic: the
// connection and its other calls go on.
func TestPanicOfUndoHarmsNobody(t *testing.T) {
	t.Parallel()
	const method = "/t.T/Undo"
	begun, answer := make(chan struct{}, 2), make(chan struct{})
	s, addr := start(t, func(conf *Config) {
		conf.Handlers[method] = Handler{Serve: func(_ context.Context, calls []*Call) {
			begun <- struct{}{}
			<-answer
			for _, c := range calls {
				c.Undo = func() { panic("a fault") }
			}
		}}
	})
	p := newPeer(t, addr)
	first, second := p.call(method, nil), p.call(method, nil)
	p.flush()
	<-begun
	p.must(p.fr.WriteRSTStream(first, http2.ErrCodeCancel))
	p.flush()
	eventually(t, "the reset is read", func() bool { return s.Stats().Cancelled == 1 })
	close(answer)
	if a := p.answer(second); a.status != "0" {
		t.Errorf("the call beside it: %+v", a)
	}
	p.must(p.fr.WriteRSTStream(second, http2.ErrCodeCancel)) // its answer is undone, too
	if a := p.answerNow(methodEcho, "x"); a.status != "0" {
		t.Errorf("the next call: %+v", a)
	}
	p.nc.Close()
	wantNoMemory(t, s)
}
