package unary

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// An attack is a client that means harm. It runs against a server with short
// timeouts, beside a client that does not and must not notice.
func attack(t *testing.T, change func(*Config), run func(t *testing.T, s *Server, addr string)) {
	t.Helper()
	s, addr := start(t, func(conf *Config) {
		conf.ReadTimeout, conf.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond
		conf.KeepaliveInterval, conf.KeepaliveTimeout = time.Minute, time.Minute
		if change != nil {
			change(conf)
		}
	})
	healthy := dial(t, addr)
	if _, err := invoke(healthy, methodEcho, "hello"); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var calls int
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			method := []string{methodEcho, methodWorker}[calls%2]
			if got, err := invoke(healthy, method, "hello"); got != "hello" {
				t.Errorf("the healthy client: %q, %v", got, err)
				return
			}
			calls++
		}
	})
	before := heap()
	run(t, s, addr)
	close(stop)
	wg.Wait()
	if calls == 0 {
		t.Error("the healthy client was not served")
	}
	if accepted := s.Stats().Accepted; accepted < 1 {
		t.Error(accepted)
	}
	eventually(t, "all connections but the healthy one are gone", func() bool { return s.Stats().Connections == 1 })
	if grown := int64(heap()) - int64(before); grown > 32<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	// A worker may still have calls of a connection that is gone.
	eventually(t, "no bytes of requests are held", func() bool { return s.Stats().Buffered == 0 })
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// flood writes frames until the server has had enough, reading all it sends,
// and returns the code of its GOAWAY.
func (p *peer) flood(most int, frame func(i int)) (http2.ErrCode, bool) {
	p.tb.Helper()
	const limit = 20 * time.Second
	p.deadline(2 * limit) // its end must not look like that of the connection
	type result struct {
		code http2.ErrCode
		ok   bool
	}
	done := make(chan result, 1)
	go func() {
		var r result
		for {
			f, err := p.fr.ReadFrame()
			if err != nil {
				done <- r
				return
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				r = result{g.ErrCode, true}
			}
		}
	}()
	for i := range most {
		frame(i)
		if i%64 == 63 && p.out.Flush() != nil {
			break
		}
	}
	_ = p.out.Flush() // the server may have closed
	select {
	case r := <-done:
		return r.code, r.ok
	case <-time.After(limit):
		p.tb.Error("the server did not end the connection")
		return 0, false
	}
}

func wantCalm(t *testing.T, code http2.ErrCode, ok bool) {
	t.Helper()
	if !ok || code != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("GOAWAY %v %v, want ENHANCE_YOUR_CALM", ok, code)
	}
}

func TestFloodsAreStoppedAndCounted(t *testing.T) {
	const most = 1_000_000
	for name, frame := range map[string]func(p *peer) func(i int){
		"rapid reset of whole calls": func(p *peer) func(int) {
			return func(int) { _ = p.fr.WriteRSTStream(p.call(methodWorker, nil), http2.ErrCodeCancel) }
		},
		"rapid reset of headers": func(p *peer) func(int) {
			return func(int) {
				_ = p.fr.WriteRSTStream(p.open(false, callHeaders(methodEcho)...), http2.ErrCodeCancel)
			}
		},
		"SETTINGS": func(p *peer) func(int) { return func(int) { _ = p.fr.WriteSettings() } },
		"SETTINGS that change all windows": func(p *peer) func(int) {
			return func(i int) {
				_ = p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 2 * 65535)})
			}
		},
		"SETTINGS acknowledgements": func(p *peer) func(int) { return func(int) { _ = p.fr.WriteSettingsAck() } },
		"PING":                      func(p *peer) func(int) { return func(int) { _ = p.fr.WritePing(false, [8]byte{}) } },
		"PING acknowledgements":     func(p *peer) func(int) { return func(int) { _ = p.fr.WritePing(true, [8]byte{1}) } },
		"RST_STREAM of closed streams": func(p *peer) func(int) {
			id := p.call(methodEcho, nil)
			return func(int) { _ = p.fr.WriteRSTStream(id, http2.ErrCodeCancel) }
		},
		"empty DATA": func(p *peer) func(int) {
			id := p.open(false, callHeaders(methodEcho)...)
			return func(int) { _ = p.fr.WriteData(id, false, nil) }
		},
		"padding only": func(p *peer) func(int) {
			id := p.open(false, callHeaders(methodEcho)...)
			return func(int) { _ = p.fr.WriteDataPadded(id, false, nil, make([]byte, 5)) }
		},
		"DATA on closed streams": func(p *peer) func(int) {
			id := p.call(methodEcho, nil)
			return func(int) { _ = p.fr.WriteData(id, false, nil) }
		},
		"PRIORITY": func(p *peer) func(int) {
			return func(i int) { _ = p.fr.WritePriority(uint32(2*i+1), http2.PriorityParam{Weight: 1}) }
		},
		"frames of unknown types": func(p *peer) func(int) {
			return func(int) { _ = p.fr.WriteRawFrame(0xaa, 0xff, 7, []byte("hello")) }
		},
		"WINDOW_UPDATE": func(p *peer) func(int) { return func(int) { _ = p.fr.WriteWindowUpdate(1, 1) } },
		"malformed requests": func(p *peer) func(int) {
			return func(int) { p.open(true, ":method", "POST") }
		},
		"calls above the bound": func(p *peer) func(int) {
			return func(int) { p.open(false, callHeaders(methodEcho)...) }
		},
		"calls without memory for them": func(p *peer) func(int) {
			return func(int) { p.open(false, callHeaders(methodEcho)...) }
		},
		"requests without memory for them": func(p *peer) func(int) {
			part := grpcMessage(make([]byte, 250<<10))[:16<<10]
			return func(i int) {
				id := uint32(2*i + 1)
				_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(callHeaders(methodEcho)...),
					EndHeaders: true})
				_ = p.fr.WriteData(id, false, part)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attack(t, func(conf *Config) {
				conf.ReadTimeout, conf.MaxConcurrentStreams = time.Minute, 100
				if name == "calls without memory for them" {
					conf.Memory, conf.MaxConcurrentStreams = memory.NewPool(256<<10), 1<<20
				}
			}, func(t *testing.T, s *Server, addr string) {
				p := newPeer(t, addr)
				if strings.HasPrefix(name, "WINDOW") {
					p.open(false, callHeaders(methodEcho)...)
				}
				code, ok := p.flood(most, frame(p))
				// The other side may see the connection reset before it sees the
				// GOAWAY, when it goes on writing.
				if ok {
					wantCalm(t, code, ok)
				}
				if n := s.Stats().Floods; n != 1 {
					t.Errorf("%d floods are counted: %+v", n, s.Stats())
				}
			})
		})
	}
}

// TestResetInHandler shows that calls that are taken back while a worker has
// them count as in flight until it lets go of them: the others are refused.
func TestResetInHandler(t *testing.T) {
	t.Parallel()
	release, started := make(chan struct{}), make(chan struct{}, 100)
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	defer free()
	s, addr := start(t, func(conf *Config) {
		conf.MaxConcurrentStreams = 10
		conf.Handlers[methodHang] = Handler{Serve: func(context.Context, []*Call) {
			started <- struct{}{}
			<-release
		}}
	})
	p := newPeer(t, addr)
	var last uint32
	for range 10 {
		last = p.call(methodHang, nil)
		p.flush()
		<-started
		p.must(p.fr.WriteRSTStream(last, http2.ErrCodeCancel))
		p.flush()
	}
	last = p.call(methodEcho, nil)
	p.flush()
	if a := p.answer(last); a.reset != http2.ErrCodeRefusedStream {
		t.Errorf("the eleventh call: %+v", a)
	}
	free()
	eventually(t, "calls are served again", func() bool {
		id := p.call(methodEcho, nil)
		p.flush()
		return p.answer(id).status == "0"
	})
	if got := s.Stats(); got.RefusedStreams == 0 || got.Cancelled < 10 {
		t.Errorf("%+v", got)
	}
}

func TestContinuationFloodEndsTheConnection(t *testing.T) {
	t.Parallel()
	for name, fragment := range map[string][]byte{
		"empty": nil,
		"small": {0x82},
		"large": bytes.Repeat([]byte{0x82}, 16<<10),
		// A literal whose name has no end.
		"one field": bytes.Repeat([]byte{0xff}, 16<<10),
	} {
		t.Run(name, func(t *testing.T) {
			attack(t, nil, func(t *testing.T, s *Server, addr string) {
				p := newPeer(t, addr)
				p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(callHeaders(methodEcho)...)}))
				code, ok := p.flood(1_000_000, func(int) { _ = p.fr.WriteContinuation(1, false, fragment) })
				if ok {
					wantCalm(t, code, ok)
				}
				if s.Stats().Floods != 1 {
					t.Errorf("%+v", s.Stats())
				}
			})
		})
	}
}

// TestHeaderBombsFailOnlyTheirCall sends small blocks that mean much.
func TestHeaderBombsFailOnlyTheirCall(t *testing.T) {
	t.Parallel()
	attack(t, nil, func(t *testing.T, s *Server, addr string) {
		// One entry of 4,000 bytes in the table, then references to it.
		p := newPeer(t, addr)
		bomb := p.block(callHeaders(methodEcho, "bomb", strings.Repeat("b", 3500))...)
		block := append(bytes.Clone(bomb), bytes.Repeat([]byte{0xbe}, 10_000)...)
		p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true,
			EndStream: true}))
		p.flush()
		if a := p.answer(1); a.http != "431" || a.status != "8" {
			t.Errorf("35 MB in 14 KB: %+v", a)
		}
		// The table is still the client's: the connection goes on.
		p.next = 3
		id := p.call(methodEcho, []byte("x"))
		p.flush()
		if a := p.answer(id); a.status != "0" {
			t.Errorf("after it: %+v", a)
		}
		p.nc.Close()
	})
}

func TestWrongTableSizesEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		block []byte
		code  http2.ErrCode
	}{
		"a table above the bound":       {[]byte{0x3f, 0xe2, 0x1f, 0x82}, http2.ErrCodeCompression},
		"a huge table":                  {[]byte{0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f}, http2.ErrCodeCompression},
		"a size that never ends":        {append([]byte{0x3f}, bytes.Repeat([]byte{0xff}, 100)...), http2.ErrCodeCompression},
		"an index that does not exist":  {[]byte{0xff, 0x7f}, http2.ErrCodeCompression},
		"index 0":                       {[]byte{0x80}, http2.ErrCodeCompression},
		"a string that is cut off":      {[]byte{0x40, 0x05, 'a'}, http2.ErrCodeCompression},
		"a string longer than a block":  {[]byte{0x40, 0x7f, 0xff, 0xff, 0xff, 0x07, 'a'}, http2.ErrCodeCompression},
		"Huffman of nothing but ones":   {[]byte{0x40, 0x84, 0xff, 0xff, 0xff, 0xff, 0x01, 'a'}, http2.ErrCodeCompression},
		"a block larger than the bound": {bytes.Repeat([]byte{0x20}, 16<<10), http2.ErrCodeEnhanceYourCalm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attack(t, func(conf *Config) { conf.MaxHeaderListSize = 4 << 10 }, func(t *testing.T, s *Server, addr string) {
				p := newPeer(t, addr)
				p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block, EndHeaders: true}))
				p.flush()
				if code, ok := p.end(); !ok || code != c.code {
					t.Errorf("%v %v, want %v", ok, code, c.code)
				}
			})
		})
	}
	t.Run("a table that is emptied and filled", func(t *testing.T) {
		attack(t, nil, func(t *testing.T, s *Server, addr string) {
			p := newPeer(t, addr)
			for i := range 2000 {
				p.enc.SetMaxDynamicTableSize(uint32(i % 2 * 4096))
				if a := p.answerNow(methodEcho, ""); a.status != "0" {
					t.Fatalf("call %d: %+v", i, a)
				}
			}
			p.nc.Close()
		})
	})
}

// answerNow makes a call and returns its answer, however long a busy machine takes for it.
func (p *peer) answerNow(method, message string) answer {
	p.tb.Helper()
	id := p.callWithin("1M", method, message)
	p.flush()
	return p.answer(id)
}

func TestHeaderListTooLarge(t *testing.T) {
	t.Parallel()
	attack(t, nil, func(t *testing.T, s *Server, addr string) {
		p := newPeer(t, addr)
		for _, large := range []string{strings.Repeat("l", 40_000), ""} {
			fields := callHeaders(methodEcho, "large", large)
			if large == "" {
				for range 500 {
					fields = append(fields, "large", strings.Repeat("l", 40))
				}
			}
			id := p.next
			p.next += 2
			block := bytes.Clone(p.block(fields...))
			p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:100], EndStream: true}))
			for block = block[100:]; len(block) > 10_000; block = block[10_000:] {
				p.must(p.fr.WriteContinuation(id, false, block[:10_000]))
			}
			p.must(p.fr.WriteContinuation(id, true, block))
			p.flush()
			if a := p.answer(id); a.http != "431" {
				t.Errorf("%+v", a)
			}
		}
		if a := p.answerNow(methodEcho, "x"); a.status != "0" {
			t.Errorf("after it: %+v", a)
		}
		p.nc.Close()
	})
}

// TestWindowOverflowIsRefused covers windows above 2^31-1, in each way there is.
func TestWindowOverflowIsRefused(t *testing.T) {
	t.Parallel()
	attack(t, nil, func(t *testing.T, s *Server, addr string) {
		p := newPeer(t, addr)
		p.must(p.fr.WriteWindowUpdate(0, maxWindow))
		p.flush()
		if code, _ := p.end(); code != http2.ErrCodeFlowControl {
			t.Errorf("of the connection: %v", code)
		}

		p = newPeer(t, addr)
		id := p.open(false, callHeaders(methodEcho)...)
		p.must(p.fr.WriteWindowUpdate(id, maxWindow))
		p.flush()
		if a := p.answer(id); a.reset != http2.ErrCodeFlowControl {
			t.Errorf("of a stream: %+v", a)
		}
		if a := p.answerNow(methodEcho, ""); a.status != "0" {
			t.Errorf("after it: %+v", a)
		}
		id = p.open(false, callHeaders(methodEcho)...)
		p.must(p.fr.WriteWindowUpdate(id, 1<<30))
		p.must(p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow}))
		p.flush()
		if code, _ := p.end(); code != http2.ErrCodeFlowControl {
			t.Errorf("by SETTINGS: %v", code)
		}
	})
}

// TestIgnoringTheWindowGainsNothing sends more than the stream's window without waiting for
// more of it. That gains nothing: other bounds hold what is kept.
func TestIgnoringTheWindowGainsNothing(t *testing.T) {
	t.Parallel()
	attack(t, nil, func(t *testing.T, s *Server, addr string) {
		p := newPeer(t, addr)
		id := p.open(false, callHeaders(methodMeta)...)
		body := grpcMessage(make([]byte, 200<<10))
		for len(body) > 0 {
			part := body[:min(len(body), 16<<10)]
			body = body[len(part):]
			p.must(p.fr.WriteData(id, len(body) == 0, part))
		}
		p.flush()
		if a := p.answer(id); a.status != "0" && a.reset != http2.ErrCodeFlowControl {
			t.Errorf("%+v", a)
		}
		p.nc.Close()
	})
}

// TestZeroWindow never opens a window for the answers.
func TestZeroWindow(t *testing.T) {
	t.Parallel()
	attack(t, nil, func(t *testing.T, s *Server, addr string) {
		p := newPeer(t, addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		var ids []uint32
		for range 200 {
			ids = append(ids, p.call(methodBig, []byte("60000")))
		}
		p.flush()
		for _, id := range ids[:1] {
			if a := p.answer(id); a.reset != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("%+v", a)
			}
		}
		eventually(t, "all calls are given up", func() bool { return s.Stats().Timeouts >= 60 })
		p.nc.Close()
	})
	attack(t, nil, func(t *testing.T, s *Server, addr string) {
		p := newPeer(t, addr)
		for range 10 { // the connection's own window
			p.call(methodBig, []byte("60000"))
		}
		p.flush()
		eventually(t, "all but one call are given up", func() bool { return s.Stats().Timeouts == 9 })
		p.nc.Close()
	})
}

// TestUnreadAnswersEndTheConnection makes calls without end whose answers it gives no
// window: the handler is asked for a bounded number of them only.
func TestUnreadAnswersEndTheConnection(t *testing.T) {
	t.Parallel()
	var handled atomic.Int64
	attack(t, func(conf *Config) {
		conf.ReadTimeout, conf.WriteTimeout = time.Minute, time.Minute // a busy client is no slow one
		big := conf.Handlers[methodBig].Inline
		conf.Handlers[methodBig] = Handler{Inline: func(ctx context.Context, calls []*Call) []*Call {
			handled.Add(int64(len(calls)))
			return big(ctx, calls)
		}}
	}, func(t *testing.T, s *Server, addr string) {
		p := newPeer(t, addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		code, ok := p.flood(5000, func(int) { p.call(methodBig, []byte("60000")) })
		if ok {
			wantCalm(t, code, ok)
		}
		// Those that wait, those that cost the patience, and one read's worth of calls.
		if most := int64(maxWaiting/60_000 + patience/costUnread + 1100); handled.Load() > most || s.Stats().Floods != 1 {
			t.Errorf("%d calls are handled, want at most %d: %+v", handled.Load(), most, s.Stats())
		}
	})
}

// TestDoesNotRead sends calls with large answers and does not read.
func TestDoesNotRead(t *testing.T) {
	t.Parallel()
	for _, method := range []string{methodBig, methodWorker} {
		attack(t, nil, func(t *testing.T, s *Server, addr string) {
			p := peerOn(t, dialSmall(t, addr))
			p.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow})
			p.must(p.fr.WriteWindowUpdate(0, maxWindow-defaultWindow))
			message := []byte("60000")
			if method == methodWorker {
				message = make([]byte, 10_000)
			}
			for {
				if s.Stats().Timeouts > 0 {
					break
				}
				p.call(method, message)
				if p.out.Flush() != nil {
					break
				}
			}
			eventually(t, "the connection is closed for it", func() bool { return s.Stats().Connections == 1 })
		})
	}
}

// dialSmall connects with a receive buffer of a few KiB. It sets the size before it
// connects: a window that shrinks later makes the client's kernel drop segments
// of the server's, and with them the news that the client may send on. Then
// neither side moves, and nobody is to blame.
func dialSmall(t *testing.T, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		})
		return errors.Join(err, failed)
	}}
	nc, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// TestHalfOpenConnectionIsClosed has a client that is gone without a word: it answers no ping.
func TestHalfOpenConnectionIsClosed(t *testing.T) {
	t.Parallel()
	attack(t, func(conf *Config) {
		conf.KeepaliveInterval, conf.KeepaliveTimeout = 100*time.Millisecond, 200*time.Millisecond
	}, func(t *testing.T, s *Server, addr string) {
		p := newPeer(t, addr)
		began := time.Now()
		if _, goAway := p.end(); goAway || time.Since(began) < 200*time.Millisecond {
			t.Errorf("GOAWAY %v after %v", goAway, time.Since(began))
		}
	})
}

// TestQuietPeerSurvivesKeepalive has one that is quiet, but there.
func TestQuietPeerSurvivesKeepalive(t *testing.T) {
	t.Parallel()
	_, addr := start(t, func(conf *Config) {
		conf.KeepaliveInterval, conf.KeepaliveTimeout = 50*time.Millisecond, 100*time.Millisecond
	})
	p := newPeer(t, addr)
	for pings := 0; pings < 5; {
		if f, ok := p.read().(*http2.PingFrame); ok {
			p.must(p.fr.WritePing(true, f.Data))
			p.flush()
			pings++
		}
	}
	if a := p.answerNow(methodEcho, "x"); string(a.body) != "\x00\x00\x00\x00\x01x" {
		t.Errorf("%+v", a)
	}
}

// TestSlowClientsAreCutOff covers clients that stop in the middle, or send a byte now and then.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	hello := []byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	partial := append(bytes.Clone(hello), 0, 0, 100, byte(http2.FrameHeaders), 4, 0, 0, 0, 1, 0x82)
	for name, bytes := range map[string][]byte{
		"nothing":         nil,
		"half a preface":  hello[:10],
		"no settings":     hello[:len(http2.ClientPreface)],
		"half a header":   partial[:len(hello)+4],
		"half of a frame": partial,
	} {
		for _, dribble := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				attack(t, nil, func(t *testing.T, s *Server, addr string) {
					p := rawPeer(t, addr)
					p.write(bytes)
					p.flush()
					if dribble && len(bytes) == len(partial) {
						for range 50 {
							time.Sleep(20 * time.Millisecond)
							if _, err := p.nc.Write([]byte{0x82}); err != nil {
								break
							}
						}
					}
					p.end()
					if s.Stats().Timeouts != 1 {
						t.Errorf("%+v", s.Stats())
					}
				})
			})
		}
	}
	t.Run("header block", func(t *testing.T) {
		attack(t, nil, func(t *testing.T, s *Server, addr string) {
			p := newPeer(t, addr)
			p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
			p.flush()
			for range 20 {
				time.Sleep(20 * time.Millisecond)
				_ = p.fr.WriteContinuation(1, false, []byte{0x82})
				if p.out.Flush() != nil {
					break
				}
			}
			p.end()
		})
	})
	t.Run("body", func(t *testing.T) {
		attack(t, nil, func(t *testing.T, s *Server, addr string) {
			p := newPeer(t, addr)
			id := p.open(false, callHeaders(methodEcho)...)
			p.must(p.fr.WriteData(id, false, []byte{0, 0}))
			p.flush()
			if a := p.answer(id); a.status != "4" {
				t.Errorf("%+v", a)
			}
			if a := p.answerNow(methodEcho, ""); a.status != "0" {
				t.Errorf("after it: %+v", a)
			}
			p.nc.Close()
		})
	})
}

// TestUnfinishedRequestsHoldBoundedMemory begins many large requests and ends none.
func TestUnfinishedRequestsHoldBoundedMemory(t *testing.T) {
	t.Parallel()
	attack(t, func(conf *Config) { conf.ReadTimeout = 2 * time.Second }, func(t *testing.T, s *Server, addr string) {
		p := newPeer(t, addr)
		part := grpcMessage(make([]byte, 256<<10))[:16<<10]
		for range 200 {
			id := p.open(false, callHeaders(methodEcho)...)
			p.must(p.fr.WriteData(id, false, part))
			p.flush()
		}
		eventually(t, "some are refused", func() bool { return s.Stats().Failed > 100 })
		if held := s.Stats().Buffered; held > 1100<<10 {
			t.Errorf("%d bytes are held", held)
		}
		p.nc.Close()
	})
}

// TestGzipBombsHoldBoundedMemory sends many messages that decompress to the largest size.
func TestGzipBombsHoldBoundedMemory(t *testing.T) {
	t.Parallel()
	attack(t, nil, func(t *testing.T, s *Server, addr string) {
		var packed bytes.Buffer
		zw := gzip.NewWriter(&packed)
		_, _ = zw.Write(make([]byte, 250<<10))
		zw.Close()
		message := grpcMessage(packed.Bytes())
		message[0] = 1
		p := newPeer(t, addr)
		var last uint32
		for range 200 {
			last = p.open(false, callHeaders(methodHang, "grpc-encoding", "gzip")...)
			p.must(p.fr.WriteData(last, true, message))
		}
		p.flush()
		p.answer(last)
		if held := s.Stats().Buffered; held > 2<<20 {
			t.Errorf("%d bytes are held", held)
		}
		p.nc.Close()
	})
}

func TestGarbageClosesTheConnection(t *testing.T) {
	t.Parallel()
	attack(t, nil, func(t *testing.T, s *Server, addr string) {
		random := make([]byte, 100_000)
		_, _ = rand.Read(random)
		for _, garbage := range [][]byte{
			random,
			[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
			[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), // TLS
			append([]byte(http2.ClientPreface), random...),
			append([]byte(http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), random...),
		} {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = nc.Write(garbage)
			expectClosed(t, nc)
		}
	})
}

// TestTooManyConnections opens more than are allowed.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	attack(t, func(conf *Config) { conf.MaxConnections = 5 }, func(t *testing.T, s *Server, addr string) {
		var peers []*peer
		for range 4 {
			p := newPeer(t, addr)
			p.answerNow(methodEcho, "in use")
			peers = append(peers, p)
		}
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		expectClosed(t, nc)
		if s.Stats().Refused != 1 {
			t.Errorf("%+v", s.Stats())
		}
		for _, p := range peers {
			p.nc.Close()
		}
		eventually(t, "there is room again", func() bool { return s.Stats().Connections == 1 })
		newPeer(t, addr).nc.Close()
	})
}

// TestConnectionsThatWaitMakeRoom opens many more connections than are allowed, of which none makes a call: one that
// does keeps its place, and a new one gets one.
func TestConnectionsThatWaitMakeRoom(t *testing.T) {
	t.Parallel()
	s, addr := start(t, func(conf *Config) { conf.MaxConnections, conf.ReadTimeout = 10, time.Minute })
	used := newPeer(t, addr)
	used.answerNow(methodEcho, "first")
	for range 50 {
		rawPeer(t, addr)
	}
	if a := used.answerNow(methodEcho, "still here"); a.status != "0" {
		t.Errorf("the connection in use: %+v", a)
	}
	if a := newPeer(t, addr).answerNow(methodEcho, "new"); a.status != "0" {
		t.Errorf("a new connection: %+v", a)
	}
	eventually(t, "most are closed", func() bool { return s.Stats().Connections <= 10 })
	if stats := s.Stats(); stats.Refused != 0 || stats.Displaced < 40 {
		t.Errorf("%d refused and %d displaced, want 0 and at least 40", stats.Refused, stats.Displaced)
	}
}

// TestDisplacedConnectionsTakeNoPlace opens connections while the goroutines of those that had to go have not ended, as
// on a machine that is too busy: a new one gets a place.
func TestDisplacedConnectionsTakeNoPlace(t *testing.T) {
	const most = 10
	s, err := New(Config{Handlers: testHandlers(), MaxConnections: most})
	if err != nil {
		t.Fatal(err)
	}
	var all []*conn
	add := func() bool {
		all = append(all, newConn(s.shared, &s.workers, &fuzzConn{}, 0))
		return s.add(all[len(all)-1])
	}
	for i := range most + maxLeaving {
		if !add() {
			t.Fatalf("connection %d was refused", i)
		}
	}
	if n := s.Stats().Connections; n != most || add() {
		t.Errorf("%d connections are open beside %d that have not ended, want %d and no more", n, s.leaving, most)
	}
	for _, c := range all[:most+maxLeaving] {
		s.remove(c)
	}
	if s.leaving != 0 || !add() {
		t.Errorf("%d connections have not ended", s.leaving)
	}
}

// TestIdleConnections opens as many connections as the process may, up to
// 10,000, each after a call, and sees what they cost.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	n := idleConnections(t)
	if testing.Short() || raceEnabled {
		n = min(n, 1000)
	}
	c := startChild(t, "unary")
	first := newPeer(t, c.addr)
	_, _, before := c.usage(t, "gc")
	var conns []net.Conn
	defer func() {
		for _, nc := range conns {
			nc.Close()
		}
	}()
	hello := first.greetingAndCall()
	reply := make([]byte, 512)
	for range n {
		nc, err := net.Dial("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, nc)
		if _, err := nc.Write(hello); err != nil {
			t.Fatal(err)
		}
	}
	for _, nc := range conns {
		if err := nc.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAtLeast(nc, reply, 60); err != nil {
			t.Fatal(err)
		}
	}
	if a := first.answerNow(methodEcho, "x"); a.status != "0" {
		t.Errorf("%+v", a)
	}
	_, _, after := c.usage(t, "gc")
	each := (after - before) / int64(n)
	time.Sleep(trimAfter + time.Second)
	_, _, trimmed := c.usage(t, "gc")
	quiet := (trimmed - before) / int64(n)
	t.Logf("%d connections: %d bytes each, %d after %v without a call", n, each, quiet, trimAfter)
	if quiet > 24<<10 {
		t.Errorf("%d bytes per idle connection", quiet)
	}
}

// greetingAndCall returns what a client sends for its first call.
func (p *peer) greetingAndCall() []byte {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&b, nil)
	p.must(fr.WriteSettings())
	p.must(fr.WriteSettingsAck())
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	fields := callHeaders(methodEcho)
	for i := 0; i < len(fields); i += 2 {
		p.must(enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	p.must(fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	p.must(fr.WriteData(1, true, binary.BigEndian.AppendUint32([]byte{0}, 0)))
	return b.Bytes()
}

// TestManyLargeAnswers gets more than may be queued at a time, and reads it
// late: with all the window there is, nothing of it is lost.
func TestManyLargeAnswers(t *testing.T) {
	t.Parallel()
	_, addr := start(t, nil)
	p := newPeer(t, addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxWindow})
	p.must(p.fr.WriteWindowUpdate(0, maxWindow-defaultWindow))
	const n, size = 120, 60_000 // 7 MB
	for range n {
		id := p.open(false, callHeaders(methodBig, "grpc-timeout", "1M")...) // the last timeout counts
		p.must(p.fr.WriteData(id, true, grpcMessage([]byte("60000"))))
	}
	p.flush()
	time.Sleep(300 * time.Millisecond)
	bytes, ended := 0, 0
	for ended < n {
		switch f := p.read().(type) {
		case *http2.DataFrame:
			bytes += len(f.Data())
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				ended++
			}
		case *http2.RSTStreamFrame:
			t.Fatalf("stream %d was reset: %v", f.StreamID, f.ErrCode)
		}
	}
	if want := n * (size + messagePrefix); bytes != want {
		t.Errorf("%d bytes, want %d", bytes, want)
	}
}
