package unary

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// TestRepeatedMetadataIsBounded opens streams with a header that the handler
// wants, many times: one byte each on the wire.
func TestRepeatedMetadataIsBounded(t *testing.T) {
	s, addr := start(t, func(conf *Config) { conf.ReadTimeout = time.Minute })
	p := newPeer(t, addr)
	fields := []string{":method", "POST", ":scheme", "http", ":path", methodMeta, "content-type", "application/grpc"}
	for range 7 {
		fields = append(fields, "x-one", strings.Repeat("v", 3800))
	}
	before := heap()
	const n = 1000
	for range n {
		p.open(false, fields...)
	}
	p.flush()
	eventually(t, "all streams are open", func() bool { return s.Stats().Memory >= n*streamCost })
	if grown := int64(heap()) - int64(before); grown > 2*n*streamCost {
		t.Errorf("the heap grew by %d bytes for %d open streams, want at most %d", grown, n, 2*n*streamCost)
	}
	p.nc.Close()
	eventually(t, "no memory is counted", func() bool { return s.Stats().Memory == 0 })
}

// TestLongMetadataIsLeftOut shows that a long header neither reaches the handler
// nor fails the call.
func TestLongMetadataIsLeftOut(t *testing.T) {
	t.Parallel()
	_, addr := start(t, nil)
	p := newPeer(t, addr)
	long := strings.Repeat("l", maxMetadata)
	for want, headers := range map[string][]string{
		`["` + long + `" "" ""]`: {"x-one", long, "x-one", "more"},
		`["" "2" ""]`:            {"x-one", long + "l", "x-two", "2"},
		`["1" "2,3" ""]`:         {"x-one", "1", "x-one", long, "x-two", "2", "x-two", "3"},
	} {
		id := p.open(false, callHeaders(methodMeta, headers...)...)
		p.must(p.fr.WriteData(id, true, grpcMessage(nil)))
		p.flush()
		if a := p.answer(id); a.status != "0" || string(a.body[messagePrefix:]) != want {
			t.Errorf("%q: %q, want %q", headers, a.body, want)
		}
	}
}

// TestHalfSentRequestsStarveNobody has many connections keep as many bytes of
// requests as they can: others are served all the same, and the hogs lose some.
func TestHalfSentRequestsStarveNobody(t *testing.T) {
	const most = 8 << 20
	s, addr := start(t, func(conf *Config) { conf.ReadTimeout, conf.Memory = time.Minute, memory.NewPool(most) })
	part := grpcMessage(make([]byte, 16<<10))[:15<<10]
	var hogs []*peer
	begin := func(n int) {
		for _, p := range hogs {
			for range n {
				_ = p.fr.WriteData(p.open(false, callHeaders(methodEcho)...), false, part)
			}
			_ = p.out.Flush() // the server may have closed the connection
		}
	}
	for range 20 {
		hogs = append(hogs, newPeer(t, addr))
	}
	for range 50 {
		begin(1)
	}
	begin(10)
	other := newPeer(t, addr)
	for i := range 50 {
		for _, method := range []string{methodEcho, methodWorker} {
			if a := other.answerNow(method, strings.Repeat("x", 500)); a.status != "0" {
				t.Fatalf("call %d of a connection that keeps nothing: %+v", i, a)
			}
		}
		begin(1)
	}
	if n := s.Stats().Failed; n == 0 {
		t.Error("no half-sent request was given up")
	}
	if held := s.Stats().Memory; held > 2*most {
		t.Errorf("%d bytes are kept, want at most %d", held, 2*most)
	}
	eventually(t, "there is room again", func() bool { return s.Stats().Memory <= most })
	for _, p := range hogs {
		p.nc.Close()
	}
	other.nc.Close()
	eventually(t, "no memory is counted", func() bool { return s.Stats().Memory == 0 })
}

// TestLargeRequestsLeaveRoomForSmallOnes keeps as much of large requests as a
// connection may: small ones on the same connection are served.
func TestLargeRequestsLeaveRoomForSmallOnes(t *testing.T) {
	t.Parallel()
	s, addr := start(t, func(conf *Config) { conf.ReadTimeout = time.Minute })
	p := newPeer(t, addr)
	part := grpcMessage(make([]byte, 16<<10))[:16<<10]
	for range 100 {
		p.must(p.fr.WriteData(p.open(false, callHeaders(methodEcho)...), false, part))
	}
	p.flush()
	eventually(t, "some are refused", func() bool { return s.Stats().Failed > 10 })
	if a := p.answerNow(methodEcho, strings.Repeat("x", 1000)); a.status != "0" {
		t.Errorf("a small call: %+v", a)
	}
	if a := p.answerNow(methodEcho, strings.Repeat("x", 15_000)); a.status != "8" {
		t.Errorf("a large call: %+v", a)
	}
}

// TestHandlerAnswersWithoutRoomForMessages: a handler that answers calls whose message is too large
// answers those, too, for which there is no memory, so that no client can make others' calls fail.
func TestHandlerAnswersWithoutRoomForMessages(t *testing.T) {
	for name, change := range map[string]func(conf *Config){
		"of the connection":      func(conf *Config) { conf.MaxHeld = 100 << 10 },
		"of all connections":     func(conf *Config) { conf.Memory = memory.NewPool(600 << 10) },
		"decompressed, of each":  func(conf *Config) { conf.MaxMessageSize = 15 << 10 },
		"decompressed, together": func(conf *Config) { conf.MaxHeld = 10 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr := start(t, func(conf *Config) {
				change(conf)
				conf.ReadTimeout = time.Minute
				conf.Handlers = map[string]Handler{
					methodEcho: {TooLarge: true, Inline: func(_ context.Context, calls []*Call) []*Call {
						for _, c := range calls {
							c.Reply = fmt.Appendf(c.Reply, "%t %d", c.TooLarge, len(c.Message))
						}
						return nil
					}}}
			})
			p := newPeer(t, addr)
			headers := callHeaders(methodEcho)
			message := grpcMessage(make([]byte, 16<<10))
			if strings.HasPrefix(name, "decompressed") {
				headers = append(headers, "grpc-encoding", "gzip")
				message = compressed(make([]byte, 16<<10))
			}
			half := len(message) / 2
			var calls []uint32
			for range 40 {
				calls = append(calls, p.open(false, headers...))
			}
			for _, id := range calls {
				p.must(p.fr.WriteData(id, false, message[:half]))
			}
			p.flush()
			answers := map[string]int{}
			for _, id := range calls {
				p.must(p.fr.WriteData(id, true, message[half:]))
				p.flush()
				a := p.answer(id)
				if a.status != "0" {
					t.Fatalf("%+v", a)
				}
				answers[string(a.body[messagePrefix:])]++
			}
			if answers["true 0"] == 0 || answers["true 0"]+answers["false 16384"] != len(calls) {
				t.Errorf("%v", answers)
			}
		})
	}
}

// compressed returns a message as gRPC frames it, compressed by gzip.
func compressed(message []byte) []byte {
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, _ = zw.Write(message)
	_ = zw.Close()
	framed := grpcMessage(packed.Bytes())
	framed[0] = 1
	return framed
}

// TestUnreadAnswersAreBounded gets, on many connections, large answers for which
// there is no window: all of them together keep to the bound.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const most = 8 << 20
	s, addr := start(t, func(conf *Config) { conf.WriteTimeout, conf.Memory = time.Minute, memory.NewPool(most) })
	before := heap()
	for range 10 {
		p := newPeer(t, addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for range 60 {
			p.call(methodBig, []byte("60000"))
		}
		p.flush()
	}
	other := newPeer(t, addr)
	if a := other.answerNow(methodBig, "10000"); a.status != "0" {
		t.Errorf("%+v", a)
	}
	eventually(t, "more is answered than fits", func() bool { return s.Stats().Answered > most/60_000 })
	eventually(t, "the bound holds", func() bool {
		return s.Stats().Memory <= most && int64(heap())-int64(before) <= 3*most
	})
}

// TestReceiptsEndBeforeTheConnection shows that what an answer keeps for its undo goes
// soon, though the connection stays.
func TestReceiptsEndBeforeTheConnection(t *testing.T) {
	t.Parallel()
	var undone atomic.Int64
	s, addr := start(t, func(conf *Config) {
		conf.Handlers[methodEcho] = Handler{Inline: func(_ context.Context, calls []*Call) []*Call {
			for _, c := range calls {
				c.Undo, c.UndoSize = func() { undone.Add(1) }, 10_000
			}
			return nil
		}}
	})
	p := newPeer(t, addr)
	for range 10 {
		p.answerNow(methodEcho, "")
	}
	if kept := s.Stats().Memory; kept < 10*10_000 {
		t.Errorf("%d bytes are counted with ten receipts of 10,000", kept)
	}
	eventually(t, "the receipts have ended", func() bool { return s.Stats().Memory < 10_000 })
	p.must(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	p.flush()
	p.answerNow(methodEcho, "")
	if n := undone.Load(); n != 0 {
		t.Errorf("%d answers were undone long after they were sent", n)
	}
}

// TestSettingsWalksAreFew floods a connection that has many streams with
// SETTINGS that change the window of all. Calls that are answered meanwhile do
// not pay for them.
func TestSettingsWalksAreFew(t *testing.T) {
	t.Parallel()
	s, addr := start(t, func(conf *Config) { conf.ReadTimeout = time.Minute })
	p := newPeer(t, addr)
	for range 800 {
		p.open(false, callHeaders(methodEcho)...)
	}
	began, taken := time.Now(), 0
	for range 2000 {
		var settings []http2.Setting
		for i := range 128 {
			settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(1000 + i + taken)})
		}
		_ = p.fr.WriteSettings(settings...)
		if p.out.Flush() != nil || s.Stats().Floods > 0 || p.answerNow(methodEcho, "").closed {
			break
		}
		taken++
	}
	most := 50 + int(time.Since(began).Seconds()) // the rest is what time gives back
	if s.Stats().Floods != 1 || taken > most {
		t.Errorf("%d frames that walk 800 streams were taken, want at most %d, and then the end: %+v", taken, most, s.Stats())
	}
}

// TestLastSettingCounts shows that of several values in a frame the last is
// applied, and only that.
func TestLastSettingCounts(t *testing.T) {
	t.Parallel()
	_, addr := start(t, nil)
	p := newPeer(t, addr)
	id := p.open(false, callHeaders(methodBig)...)
	p.must(p.fr.WriteWindowUpdate(id, 1000))
	window := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	p.must(p.fr.WriteSettings(window(maxWindow), window(0), window(20_000)))
	p.must(p.fr.WriteData(id, true, grpcMessage([]byte("40000"))))
	p.flush()
	got := 0
	for got < 21_000 {
		switch f := p.read().(type) {
		case *http2.DataFrame:
			got += len(f.Data())
		case *http2.GoAwayFrame:
			t.Fatalf("%v", f.ErrCode)
		}
	}
	p.must(p.fr.WriteSettings(window(0), window(40_100)))
	p.flush()
	if a := p.answer(id); a.status != "0" || got+len(a.body) != 40_000+messagePrefix || got != 21_000 {
		t.Errorf("%d bytes by the first window, then %d: %+v", got, len(a.body), a)
	}
}

// TestInflationCosts floods a connection with small messages that are large when
// they are decompressed.
func TestInflationCosts(t *testing.T) {
	t.Parallel()
	call := func(p *peer, body []byte) answer {
		id := p.open(false, callHeaders(methodEcho, "grpc-encoding", "gzip")...)
		_ = p.fr.WriteData(id, true, body)
		_ = p.out.Flush()
		return p.answer(id)
	}
	s, addr := start(t, nil)
	p, bomb, answered := newPeer(t, addr, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}),
		compressed(make([]byte, 200<<10)), 0
	p.must(p.fr.WriteWindowUpdate(0, maxWindow-defaultWindow))
	for answered < 500 && !call(p, bomb).closed {
		answered++
	}
	if answered > 100 || s.Stats().Floods != 1 {
		t.Errorf("%d messages that grow a thousandfold were answered: %+v", answered, s.Stats())
	}
	q, text := newPeer(t, addr), compressed([]byte(strings.Repeat("remote_address 10.0.0.1 path /api/users ", 30)))
	for i := range 2000 {
		if a := call(q, text); a.status != "0" {
			t.Fatalf("call %d with an ordinary message: %+v", i, a)
		}
		if i%10 == 0 {
			q.must(q.fr.WriteWindowUpdate(0, 20_000))
		}
	}
}
