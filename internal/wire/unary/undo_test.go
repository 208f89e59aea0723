package unary

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestAnswersThatAreNotTakenAreUndone: the handler learns, once, which answers were not taken.
func TestAnswersThatAreNotTakenAreUndone(t *testing.T) {
	const method = "/t.T/Grant"
	serve := func(conf *Config) (undone *atomic.Int64, begun, answer chan struct{}) {
		undone, begun, answer = new(atomic.Int64), make(chan struct{}, 8), make(chan struct{}, 8)
		conf.Handlers[method] = Handler{Serve: func(_ context.Context, calls []*Call) {
			begun <- struct{}{}
			<-answer
			for _, c := range calls {
				c.Reply = append(c.Reply, strings.Repeat("x", 1000)...)
				c.Undo = func() { undone.Add(1) }
			}
		}}
		return undone, begun, answer
	}
	var undone *atomic.Int64
	var begun, answer chan struct{}
	s, addr := start(t, func(conf *Config) { undone, begun, answer = serve(conf) })
	want := func(n int64, when string) {
		t.Helper()
		eventually(t, when, func() bool { return undone.Load() == n })
	}
	reset := func(p *peer, id uint32) {
		p.must(p.fr.WriteRSTStream(id, http2.ErrCodeCancel))
		p.flush()
	}

	p := newPeer(t, addr)
	id := p.call(method, nil)
	p.flush()
	<-begun
	reset(p, id)
	eventually(t, "the reset is read", func() bool { return s.Stats().Cancelled == 1 })
	answer <- struct{}{}
	want(1, "given up before the answer")

	id = p.call(method, nil)
	p.flush()
	<-begun
	answer <- struct{}{}
	p.answer(id)
	if n := undone.Load(); n != 1 {
		t.Errorf("%d answers are unwanted, though the last was read", n-1)
	}
	for range 3 {
		reset(p, id)
	}
	want(2, "reset when the answer was on its way")

	q := newPeer(t, addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	q.call(method, nil)
	q.flush()
	<-begun
	answer <- struct{}{}
	eventually(t, "the answer waits for window", func() bool { return s.Stats().Answered == 2 })
	q.nc.Close()
	want(3, "the connection ended while the answer waited for window")

	id = p.call(method, nil)
	p.flush()
	<-begun
	answer <- struct{}{}
	p.answer(id)
	p.nc.Close()
	eventually(t, "all connections are gone", func() bool { return s.Stats().Connections == 0 })
	if n := undone.Load(); n != 3 {
		t.Errorf("%d unwanted, want 3: the last answer was read", n)
	}
}

func TestSentAnswersAreBounded(t *testing.T) {
	var r sentAnswers
	now := time.Now()
	var got []int
	for i := range maxSentAnswers + 10 {
		r.add(uint32(2*i+1), 0, func() { got = append(got, i) }, now)
	}
	for _, id := range []int{0, 9, 10, 500, maxSentAnswers + 9, maxSentAnswers + 10} {
		for range 2 {
			if undo := r.take(uint32(2*id + 1)); undo != nil {
				undo()
			}
		}
	}
	if len(got) != 3 || got[0] != 10 || got[1] != 500 || got[2] != maxSentAnswers+9 {
		t.Errorf("taken: %v", got)
	}
	if kept := len(r.list) - r.first; kept != maxSentAnswers {
		t.Errorf("%d receipts are kept", kept)
	}
	r.add(7, maxSentAnswerBytes/2, nil, now)
	if r.bytes > maxSentAnswerBytes {
		t.Errorf("%d bytes are kept, at most %d", r.bytes, maxSentAnswerBytes)
	}
	r.add(9, maxSentAnswerBytes, nil, now)
	if len(r.list)-r.first != 1 {
		t.Errorf("%d receipts are kept beside one that is as large as all may be", len(r.list)-r.first)
	}
	r.prune(now.Add(sentAnswerLife + 1))
	if r.bytes != 0 || len(r.list) != 0 {
		t.Errorf("after %v, %d receipts with %d bytes are kept", sentAnswerLife, len(r.list), r.bytes)
	}
}
