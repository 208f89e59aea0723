package unary

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// These tests speak HTTP/2 by hand.

func TestRequestsAreReadInEveryForm(t *testing.T) {
	_, addr := start(t, nil)
	message := grpcMessage([]byte("hello"))
	headers := callHeaders(methodEcho)
	for name, send := range map[string]func(p *peer) uint32{
		"one frame": func(p *peer) uint32 { return p.call(methodEcho, []byte("hello")) },
		"a byte per frame": func(p *peer) uint32 {
			id := p.open(false, headers...)
			for i := range message {
				p.must(p.fr.WriteData(id, i == len(message)-1, message[i:i+1]))
			}
			return id
		},
		"END_STREAM on an empty frame": func(p *peer) uint32 {
			id := p.open(false, headers...)
			p.must(p.fr.WriteData(id, false, message))
			p.must(p.fr.WriteData(id, true, nil))
			return id
		},
		"padding": func(p *peer) uint32 {
			id := p.next
			p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(headers...), EndHeaders: true,
				PadLength: 200}))
			p.must(p.fr.WriteDataPadded(id, true, message, make([]byte, 255)))
			return id
		},
		"priority": func(p *peer) uint32 {
			id := p.next
			p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(headers...), EndHeaders: true,
				Priority: http2.PriorityParam{StreamDep: 99, Exclusive: true, Weight: 7}}))
			p.must(p.fr.WritePriority(id, http2.PriorityParam{Weight: 3}))
			p.must(p.fr.WriteData(id, true, message))
			return id
		},
		"CONTINUATION": func(p *peer) uint32 {
			id, block := p.next, p.block(headers...)
			p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id}))
			for i := range block {
				if i%10 == 0 {
					p.must(p.fr.WriteContinuation(id, false, block[i:min(i+10, len(block))]))
				}
			}
			p.must(p.fr.WriteContinuation(id, true, nil))
			p.must(p.fr.WriteData(id, true, message))
			return id
		},
		"trailers": func(p *peer) uint32 {
			id := p.open(false, headers...)
			p.must(p.fr.WriteData(id, false, message))
			p.must(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block("some", "trailer"),
				EndHeaders: true, EndStream: true}))
			return id
		},
		"unknown frames between": func(p *peer) uint32 {
			p.must(p.fr.WriteRawFrame(0x77, 0, 0, message))
			id := p.open(false, headers...)
			p.must(p.fr.WriteRawFrame(0x77, 0xff, id, nil))
			p.must(p.fr.WriteData(id, true, message))
			return id
		},
		"identity": func(p *peer) uint32 {
			id := p.open(false, callHeaders(methodEcho, "grpc-encoding", "identity")...)
			p.must(p.fr.WriteData(id, true, message))
			return id
		},
		"no grpc-timeout, no te, content-length": func(p *peer) uint32 {
			id := p.open(false, ":method", "POST", ":scheme", "http", ":path", methodEcho, "content-type",
				"application/grpc+proto", "content-length", "10")
			p.must(p.fr.WriteData(id, true, message))
			return id
		},
	} {
		for _, split := range []bool{false, true} {
			p := newPeer(t, addr)
			var written bytes.Buffer
			if split { // a byte per segment, as far as the kernel lets us
				p.fr = http2.NewFramer(&written, p.in)
				p.fr.AllowIllegalWrites = true
			}
			id := send(p)
			for _, b := range written.Bytes() {
				if _, err := p.nc.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			p.flush()
			a := p.answer(id)
			if a.http != "200" || a.status != "0" || !bytes.Equal(a.body, message) ||
				a.fields["content-type"] != "application/grpc" {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
}

func TestRefusedRequestsTellTheReason(t *testing.T) {
	_, addr := start(t, nil)
	message := grpcMessage([]byte("hello"))
	for _, c := range []struct {
		name    string
		headers []string
		body    []byte
		want    string // HTTP status and gRPC code, or RST_STREAM's code
		message string
	}{
		{"no content-type", []string{":method", "POST", ":scheme", "http", ":path", methodEcho}, message, "415 3", ""},
		{"JSON", callHeaders(methodEcho, "content-type", "application/json"), message, "415 3", ""},
		{"gRPC-Web", callHeaders(methodEcho, "content-type", "application/grpc-web"), message, "415 3", ""},
		{"gRPC with JSON", callHeaders(methodEcho, "content-type", "application/grpc+json"), message, "415 3", ""},
		{"parameters", callHeaders(methodEcho, "content-type", "Application/gRPC+proto; charset=x"), message, "200 0", ""},
		{"GET", []string{":method", "GET", ":scheme", "http", ":path", "/"}, nil, "405 13", ""},
		{"unknown method", callHeaders("/a/b"), message, "200 12", "unknown method /a/b; it may be served on port 8082"},
		{"unknown encoding", callHeaders(methodEcho, "grpc-encoding", "br"), message, "200 12",
			`grpc-encoding "br" is not supported`},
		{"bad timeout", callHeaders(methodEcho, "grpc-timeout", "1x"), message, "200 13", `malformed grpc-timeout "1x"`},
		{"no time at all", callHeaders(methodEcho, "grpc-timeout", "0n"), message, "200 4", errDeadline.Message},
		{"no message", callHeaders(methodEcho), []byte{}, "200 13", ""},
		{"half a message", callHeaders(methodEcho), message[:8], "200 13", ""},
		{"half a prefix", callHeaders(methodEcho), message[:3], "200 13", ""},
		{"two messages", callHeaders(methodEcho), append(bytes.Clone(message), message...), "200 13", ""},
		{"compressed by nothing", callHeaders(methodEcho), append([]byte{1}, message[1:]...), "200 13", ""},
		{"a flag that is not known", callHeaders(methodEcho), append([]byte{2}, message[1:]...), "200 13", ""},
		{"gzip that is none", callHeaders(methodEcho, "grpc-encoding", "gzip"), append([]byte{1}, message[1:]...),
			"200 13", ""},
		{"te", callHeaders(methodEcho, "te", "gzip"), message, "PROTOCOL_ERROR", ""},
		{"connection", callHeaders(methodEcho, "connection", "close"), message, "PROTOCOL_ERROR", ""},
		{"upper case", callHeaders(methodEcho, "Upper", "case"), message, "PROTOCOL_ERROR", ""},
		{"content-length that is wrong", callHeaders(methodEcho, "content-length", "3"), message, "PROTOCOL_ERROR", ""},
		{"no path", []string{":method", "POST", ":scheme", "http"}, message, "PROTOCOL_ERROR", ""},
	} {
		p := newPeer(t, addr)
		id := p.open(false, headersOnce(c.headers)...)
		p.must(p.fr.WriteData(id, true, c.body))
		p.flush()
		a := p.answer(id)
		got := a.http + " " + a.status
		if a.wasReset {
			got = a.reset.String()
		}
		if got != c.want || c.message != "" && a.message != c.message {
			t.Errorf("%s: %q %q, want %q %q", c.name, got, a.message, c.want, c.message)
		}
		if c.name == "unknown encoding" && a.fields["grpc-accept-encoding"] != "identity,gzip" {
			t.Errorf("%s: %v", c.name, a.fields)
		}
		if a := p.answerNow(methodEcho, "hello"); a.status != "0" {
			t.Errorf("after %s: %+v", c.name, a)
		}
	}
}

// TestErrorsRepeatLittleOfHeaders: a header in HPACK's table costs a client one byte.
func TestErrorsRepeatLittleOfHeaders(t *testing.T) {
	_, addr := start(t, nil)
	long := strings.Repeat("l", 3000)
	for name, headers := range map[string][]string{
		"method":       {":method", long, ":scheme", "http", ":path", "/"},
		"path":         callHeaders("/" + long),
		"content-type": callHeaders(methodEcho, "content-type", long),
		"encoding":     callHeaders(methodEcho, "grpc-encoding", long),
		"timeout":      callHeaders(methodEcho, "grpc-timeout", long),
	} {
		p := newPeer(t, addr)
		id := p.open(true, headersOnce(headers)...)
		p.flush()
		if a := p.answer(id); !strings.Contains(a.message, "lll...") || len(a.message) > 2*maxQuoted {
			t.Errorf("%s: %d bytes: %q", name, len(a.message), a.message)
		}
	}
}

// headersOnce drops earlier values of headers that come twice.
func headersOnce(fields []string) (once []string) {
	last := map[string]int{}
	for i := 0; i < len(fields); i += 2 {
		last[fields[i]] = i
	}
	for i := 0; i < len(fields); i += 2 {
		if last[fields[i]] == i {
			once = append(once, fields[i], fields[i+1])
		}
	}
	return once
}

// TestSettingsInFlight changes what the client allows while answers wait.
func TestSettingsInFlight(t *testing.T) {
	_, addr := start(t, nil)
	window := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	p := newPeer(t, addr, window(100))
	id := p.call(methodBig, []byte("1000"))
	p.flush()
	data := func() int {
		t.Helper()
		for {
			switch f := p.read().(type) {
			case *http2.DataFrame:
				return len(f.Data())
			case *http2.HeadersFrame:
				_, err := p.dec.DecodeFull(f.HeaderBlockFragment())
				p.must(err)
				if f.StreamEnded() {
					return -1
				}
			case *http2.PingFrame:
				return -2
			}
		}
	}
	expect := func(want ...int) {
		t.Helper()
		for _, want := range want {
			if got := data(); got != want {
				t.Fatalf("%d bytes of DATA, want %d", got, want)
			}
		}
	}
	quiet := func() { // nothing comes before the answer to a ping
		t.Helper()
		p.must(p.fr.WritePing(false, [8]byte{1}))
		p.flush()
		expect(-2)
	}
	expect(100)
	quiet()
	p.must(p.fr.WriteSettings(window(50))) // 50 below zero
	p.must(p.fr.WriteWindowUpdate(id, 50)) // exactly none
	quiet()
	p.must(p.fr.WriteWindowUpdate(id, 1))
	p.flush()
	expect(1)
	p.must(p.fr.WriteSettings(window(150)))
	p.flush()
	expect(100)
	p.must(p.fr.WriteWindowUpdate(id, 10_000))
	p.flush()
	expect(1005-201, -1)

	// The connection's window: 1005 bytes of it are gone.
	p.must(p.fr.WriteSettings(window(200_000)))
	p.call(methodBig, []byte("100000"))
	p.flush()
	for left := defaultWindow - 1005; left > 0; {
		left -= data()
	}
	quiet()
	p.must(p.fr.WriteWindowUpdate(0, 1000))
	p.flush()
	expect(1000)
	p.must(p.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 40_000}))
	p.must(p.fr.WriteWindowUpdate(0, 100_000))
	p.flush()
	left := 100_005 - (defaultWindow - 1005) - 1000
	expect(left, -1) // with one frame
}

// TestHeaderTableSize answers clients with small tables, also when the size
// changes between answers.
func TestHeaderTableSize(t *testing.T) {
	_, addr := start(t, nil)
	size := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingHeaderTableSize, Val: n} }
	for _, sizes := range [][]uint32{{0}, {103}, {104}, {200}, {4096, 0}, {8192, 4096, 150}, {0, 4096},
		{150, 120, 100, 65536}} {
		p := newPeer(t, addr)
		for _, n := range append([]uint32{4096}, sizes...) {
			p.must(p.fr.WriteSettings(size(n)))
			p.flush()
			for acked := false; !acked; {
				f, ok := p.read().(*http2.SettingsFrame)
				acked = ok && f.IsAck()
			}
			p.dec.SetAllowedMaxDynamicTableSize(n)
			for range 3 {
				if a := p.answerNow(methodEcho, "x"); a.status != "0" || a.http != "200" ||
					a.fields["content-type"] != "application/grpc" {
					t.Errorf("%v: %+v", sizes, a)
				}
				if a := p.answerNow(methodFail, "x"); a.status != "3" || a.message != "x" ||
					a.fields["content-type"] != "application/grpc" {
					t.Errorf("%v: %+v", sizes, a)
				}
			}
		}
	}
}

// TestEncoderIsReadByAnotherDecoder compares header blocks with what another decoder makes
// of them, whatever their order and the table's size.
func TestEncoderIsReadByAnotherDecoder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		e := encoder{size: headerTableSize}
		dec := hpack.NewDecoder(headerTableSize, nil)
		for range 20 {
			var block []byte
			var want string
			switch rnd.IntN(5) {
			case 0:
				n := uint32(rnd.IntN(300))
				e.resize(n)
				dec.SetAllowedMaxDynamicTableSize(max(n, e.size))
				continue
			case 1:
				block, want = e.appendHead(e.begin(nil), 200), ":status=200 content-type=application/grpc"
			case 2:
				block, want = e.appendOK(e.begin(nil)), "grpc-status=0"
			case 3:
				block = e.appendHead(e.begin(nil), 415)
				block = e.appendStatus(block, &Status{Internal, "ü%"})
				want = ":status=415 content-type=application/grpc grpc-status=13 grpc-message=%C3%BC%25"
			case 4:
				text := strings.Repeat("y", rnd.IntN(maxStatusMessage))
				block = e.appendStatus(e.begin(nil), &Status{Code(rnd.Uint32()), text})
				want = ""
			}
			fields, err := dec.DecodeFull(block)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range fields {
				got = append(got, f.Name+"="+f.Value)
			}
			if want != "" && strings.Join(got, " ") != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
}

func TestTimeoutsNeedDigitsAndAUnit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second, "20m": 20 * time.Millisecond,
		"5u": 5 * time.Microsecond, "6n": 6, "0m": 0, "99999999S": 99999999 * time.Second, "99999999H": 1<<63 - 1,
	} {
		if got, ok := parseTimeout(text); !ok || got != want {
			t.Errorf("%s: %v %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "m", "1", "-1m", "1.5S", "123456789m", "1h", "1 m", "٣m"} {
		if got, ok := parseTimeout(text); ok {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestMessagesArePercentEncodedAndCut(t *testing.T) {
	for text, want := range map[string]string{
		"plain text!": "plain text!", "100%": "100%25", "ü\n\x7f": "%C3%BC%0A%7F",
		strings.Repeat("x", 2000): strings.Repeat("x", maxStatusMessage),
	} {
		if got := string(appendPercentEncoded(nil, text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestGoAwayLosesNoAcceptedCall follows a drain frame by frame: calls are taken until the
// client has confirmed that it knows, then left out, and the last is answered.
func TestGoAwayLosesNoAcceptedCall(t *testing.T) {
	release := make(chan struct{})
	s, addr := start(t, func(conf *Config) {
		conf.Handlers[methodHang] = Handler{Serve: func(ctx context.Context, calls []*Call) {
			<-release
			echo(ctx, calls)
		}}
	})
	p := newPeer(t, addr)
	slow := p.call(methodHang, []byte("slow"))
	p.flush()
	eventually(t, "the call is with its handler", func() bool { return s.workers.queue.waiting() == 0 })
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		done <- s.Shutdown(ctx)
	}()
	goAway := func() uint32 {
		for {
			if f, ok := p.read().(*http2.GoAwayFrame); ok {
				if f.ErrCode != http2.ErrCodeNo {
					t.Errorf("%v", f)
				}
				return f.LastStreamID
			}
		}
	}
	if last := goAway(); last != maxWindow {
		t.Errorf("first GOAWAY: last stream %d", last)
	}
	ping, ok := p.read().(*http2.PingFrame)
	if !ok {
		t.Fatal("no ping")
	}
	if a := p.answerNow(methodEcho, "in between"); a.status != "0" {
		t.Errorf("a call before the ping is answered: %+v", a)
	}
	p.must(p.fr.WritePing(true, ping.Data))
	left := p.call(methodEcho, []byte("too late"))
	p.flush()
	if last := goAway(); last >= left || last < slow {
		t.Errorf("second GOAWAY: last stream %d, of %d and %d", last, slow, left)
	}
	p.must(p.fr.WriteData(left, true, []byte("more")))
	close(release)
	p.flush()
	if a := p.answer(slow); a.status != "0" || !strings.Contains(string(a.body), "slow") {
		t.Errorf("the slow call: %+v", a)
	}
	if _, goAway := p.end(); goAway {
		t.Error("the connection ended with an error")
	}
	p.nc.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the server still listens")
	}
}

// TestShutdownClosesHangingCalls closes connections whose calls do not end.
func TestShutdownClosesHangingCalls(t *testing.T) {
	s, addr := start(t, nil)
	p := newPeer(t, addr)
	p.call(methodHang, nil)
	p.flush()
	eventually(t, "the call is with its handler", func() bool { return s.workers.queue.waiting() == 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("no error")
	}
	p.end()
}

// TestEarlyShutdownAnswersCallsOnTheirWay finds connections on which little has been said:
// a call that is on its way is still answered.
func TestEarlyShutdownAnswersCallsOnTheirWay(t *testing.T) {
	t.Parallel()
	s, addr := start(t, nil)
	silent, early := rawPeer(t, addr), rawPeer(t, addr)
	eventually(t, "both are accepted", func() bool { return s.Stats().Connections == 2 })
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		done <- s.Shutdown(ctx)
	}()
	time.Sleep(50 * time.Millisecond)
	early.greet()
	if a := early.answerNow(methodEcho, "early"); a.status != "0" {
		t.Errorf("%+v", a)
	}
	early.end()
	early.nc.Close()
	silent.end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestIdleTimeoutEndsWithoutAnError(t *testing.T) {
	t.Parallel()
	_, addr := start(t, func(conf *Config) { conf.IdleTimeout = 50 * time.Millisecond })
	p := newPeer(t, addr)
	p.answerNow(methodEcho, "")
	if _, goAway := p.end(); goAway {
		t.Error("the connection ended with an error")
	}
}

func TestWrongConfigsAreRefused(t *testing.T) {
	inline := Handler{Inline: echo}
	for name, conf := range map[string]Config{
		"no slash":      {Handlers: map[string]Handler{"a/b": inline}},
		"no method":     {Handlers: map[string]Handler{"/a": inline}},
		"no function":   {Handlers: map[string]Handler{"/a/b": {}}},
		"upper case":    {Handlers: map[string]Handler{"/a/b": {Inline: echo, Metadata: []string{"X-A"}}}},
		"negative size": {MaxMessageSize: -1},
		"negative time": {Grace: -1},
		"large":         {MaxHeaderListSize: 1 << 30},
	} {
		if _, err := New(conf); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestMixedSliceAnswersEveryCall leaves some calls of a slice to a worker.
func TestMixedSliceAnswersEveryCall(t *testing.T) {
	_, addr := start(t, func(conf *Config) {
		conf.Handlers["/t.T/Mixed"] = Handler{
			Inline: func(_ context.Context, calls []*Call) []*Call {
				rest := calls[:0]
				for _, call := range calls {
					if call.Message[0]%2 == 0 {
						call.Reply = append(call.Reply, "inline"...)
					} else {
						rest = append(rest, call)
					}
				}
				return rest
			},
			Serve: func(_ context.Context, calls []*Call) {
				for _, call := range calls {
					call.Reply = append(call.Reply, "served"...)
				}
			},
		}
	})
	p := newPeer(t, addr)
	want := map[uint32]string{}
	for i := range 50 {
		want[p.call("/t.T/Mixed", []byte{byte(i)})] = []string{"inline", "served"}[i%2]
		want[p.call(methodEcho, []byte("other"))] = "other"
	}
	p.flush()
	for len(want) > 0 {
		if f, ok := p.read().(*http2.DataFrame); ok {
			if got := string(f.Data()[messagePrefix:]); got != want[f.StreamID] {
				t.Errorf("stream %d: %q, want %q", f.StreamID, got, want[f.StreamID])
			}
			delete(want, f.StreamID)
		}
	}
}

// TestCallsLeaveNoState looks for state that one call leaves to the next.
func TestCallsLeaveNoState(t *testing.T) {
	_, addr := start(t, nil)
	p := newPeer(t, addr)
	for i := range 200 {
		switch i % 4 {
		case 0:
			id := p.open(false, callHeaders(methodEcho)...)
			p.must(p.fr.WriteData(id, false, []byte{0, 0, 0, 0, 9, 'p', 'a', 'r', 't'}))
			p.must(p.fr.WriteRSTStream(id, http2.ErrCodeCancel))
		case 1:
			p.answerNow(methodFail, fmt.Sprint(i))
		case 2:
			id := p.open(false, callHeaders(methodEcho, "grpc-encoding", "gzip")...)
			p.must(p.fr.WriteData(id, true, []byte{1, 0, 0, 0, 2, 'x', 'x'}))
			p.flush()
			p.answer(id)
		case 3:
			if a := p.answerNow(methodMeta, ""); a.status != "0" || string(a.body[messagePrefix:]) != `["" "" ""]` {
				t.Fatalf("%+v", a)
			}
		}
		want := strings.Repeat("e", i)
		if a := p.answerNow(methodEcho, want); a.status != "0" || string(a.body[messagePrefix:]) != want {
			t.Fatalf("call %d: %+v", i, a)
		}
	}
}
