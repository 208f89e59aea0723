package unary

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// TestManySmallUnreadAnswersAreBounded gets, on many connections, small answers that
// nobody reads: their streams cost more than the answers do. The connections together keep
// to the bound, and the server takes memory back until there is room again.
func TestManySmallUnreadAnswersAreBounded(t *testing.T) {
	const most = 8 << 20
	s, addr := start(t, func(conf *Config) { conf.WriteTimeout, conf.Memory = time.Minute, memory.NewPool(most) })
	seen := int64(0)
	for range 20 {
		p := newPeer(t, addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for range 200 {
			p.call(methodEcho, make([]byte, 100))
		}
		p.flush()
		seen = max(seen, s.Stats().Memory)
	}
	eventually(t, "more is answered than fits", func() bool {
		seen = max(seen, s.Stats().Memory)
		return s.Stats().Answered > most/streamCost
	})
	if seen > most {
		t.Errorf("%d bytes were kept, want at most %d", seen, most)
	}
	eventually(t, "there is room again", func() bool { return s.Stats().Memory <= most/2 })
}

// TestEmptyBuffersAreReturned fills the read buffers of many connections while memory is
// short: connections that have nothing to do give theirs back at once.
func TestEmptyBuffersAreReturned(t *testing.T) {
	t.Parallel()
	const most = 4 << 20
	s, addr := start(t, func(conf *Config) { conf.ReadTimeout, conf.Memory = time.Minute, memory.NewPool(most) })
	var peers []*peer
	for range 150 {
		p := newPeer(t, addr)
		peers = append(peers, p)
		p.must(p.fr.WriteWindowUpdate(0, maxWindow-defaultWindow))
		if a := p.answerNow(methodEcho, strings.Repeat("x", 15<<10)); a.status != "0" && a.status != "8" {
			t.Fatalf("%+v", a)
		}
	}
	if n := s.counters.timeouts.Load(); n != 0 {
		t.Errorf("%d connections were closed", n)
	}
	for last := time.Now(); s.Stats().Memory > most/2; time.Sleep(time.Millisecond) {
		if time.Since(last) > trimAfter-time.Second { // later they would return them anyway
			t.Fatalf("%d bytes are kept, want at most %d", s.Stats().Memory, most/2)
		}
	}
	for _, p := range peers {
		if a := p.answerNow(methodEcho, "still here"); a.status != "0" {
			t.Fatalf("a connection whose buffers are trimmed: %+v", a)
		}
	}
}

// TestLargeSlicesTakeTurns decides large slices of many connections: only a few at a time,
// because each needs memory that is not counted. Small slices do not wait for them.
func TestLargeSlicesTakeTurns(t *testing.T) {
	t.Parallel()
	const method = "/test.Test/Hold"
	var running, most atomic.Int64
	release := make(chan struct{})
	s, addr := start(t, func(conf *Config) {
		conf.Handlers[method] = Handler{Inline: func(ctx context.Context, calls []*Call) []*Call {
			n := running.Add(1)
			for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
				continue
			}
			select {
			case <-release:
			case <-ctx.Done():
			}
			running.Add(-1)
			return nil
		}}
	})
	turns := int64(inlinePerCPU * runtime.GOMAXPROCS(0))
	var peers []*peer
	for range 3 * turns {
		p := newPeer(t, addr)
		peers = append(peers, p)
		p.call(method, bytes.Repeat([]byte("x"), 2*smallSlice))
		p.flush()
	}
	eventually(t, "all turns are taken", func() bool { return running.Load() == turns })
	if a := newPeer(t, addr).answerNow(methodEcho, "small"); a.status != "0" {
		t.Errorf("a small slice: %+v", a)
	}
	close(release)
	for _, p := range peers {
		if a := p.answer(1); a.status != "0" {
			t.Errorf("a large slice: %+v", a)
		}
	}
	if n := most.Load(); n != turns {
		t.Errorf("%d large slices ran at a time, want %d", n, turns)
	}
	if f := s.Stats().Failed; f != 0 {
		t.Errorf("%d calls failed", f)
	}
}

// TestReadBufferGrowsForAFrameAlone shows that, while memory is short, the read buffer
// grows only for a frame that does not fit.
func TestReadBufferGrowsForAFrameAlone(t *testing.T) {
	t.Parallel()
	b := readBuffer{buf: make([]byte, smallReadBuffer)}
	from := bytes.NewReader(make([]byte, 1<<20))
	for range 100 {
		if _, err := b.fill(from, false); err != nil {
			t.Fatal(err)
		}
		b.take(len(b.bytes()))
	}
	if len(b.buf) != smallReadBuffer {
		t.Errorf("%d bytes for frames that fit, want %d", len(b.buf), smallReadBuffer)
	}
	for len(b.bytes()) < 16<<10 { // a frame of which nothing can be taken before it is whole
		if _, err := b.fill(from, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.buf) > 32<<10 {
		t.Errorf("%d bytes for a frame of 16 KiB", len(b.buf))
	}
}
