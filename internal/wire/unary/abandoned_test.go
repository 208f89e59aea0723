package unary

import (
	"context"
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// TestAbandonedCallsReachTheirHandler: what a call says that nobody waits for
// any more is not lost, wherever the call was when its client left.
func TestAbandonedCallsReachTheirHandler(t *testing.T) {
	const method = "/t.T/End"
	var mu sync.Mutex
	var seen []string
	begun, proceed := make(chan struct{}, 9), make(chan struct{})
	s, addr := start(t, func(conf *Config) {
		conf.Workers = 1
		conf.Handlers[method] = Handler{
			Serve: func(context.Context, []*Call) { begun <- struct{}{}; <-proceed },
			Abandoned: func(c *Call) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, string(c.Message))
			},
		}
		conf.Handlers[methodEcho] = Handler{Inline: echo, Abandoned: conf.Handlers[method].Abandoned}
	})
	want := func(when string, list ...string) {
		t.Helper()
		eventually(t, when, func() bool {
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(seen)
			return slices.Equal(seen, list)
		})
	}
	p := newPeer(t, addr)
	p.call(method, []byte("served"))
	p.flush()
	<-begun // the only worker is busy

	id := p.call(method, []byte("a: reset while queued"))
	p.flush()
	eventually(t, "the call is queued", func() bool { return s.workers.queue.waiting() == 1 })
	p.must(p.fr.WriteRSTStream(id, http2.ErrCodeCancel))
	for _, m := range []string{method, methodEcho} {
		id = p.call(m, []byte("b: reset in the same packet"))
		p.must(p.fr.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	id = p.open(false, append(callHeaders(method)[:12], "grpc-timeout", "1n")...)
	p.flush()
	eventually(t, "the headers are read", func() bool { return s.Stats().Cancelled == 3 })
	p.must(p.fr.WriteData(id, true, grpcMessage([]byte("c: late when it was read"))))
	p.flush()
	want("those are seen that came with their reset", "b: reset in the same packet", "b: reset in the same packet",
		"c: late when it was read")

	q := newPeer(t, addr)
	q.call(method, []byte("d: the connection ended"))
	q.flush()
	eventually(t, "the call is queued", func() bool { return s.workers.queue.waiting() == 2 })
	q.nc.Close()
	eventually(t, "the connection is gone", func() bool { return s.Stats().Connections == 1 })

	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	eventually(t, "the server closes", func() bool { return s.ctx.Err() != nil })
	close(proceed)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	want("all are seen, also those that were queued at Close", "a: reset while queued", "b: reset in the same packet",
		"b: reset in the same packet",
		"c: late when it was read", "d: the connection ended")
}
