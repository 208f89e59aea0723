package unary

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxContinuations is how many frames a header block may have.
	maxContinuations = 32
	// maxSettings is the size, in bytes, of a SETTINGS frame that is still taken for
	// honest: sixteen times what exists.
	maxSettings = 768
)

// A reader takes the frames that have arrived on a connection. The read loop alone
// uses it, under the connection's mutex, except for the read itself.
type reader struct {
	*link
	w        *writer
	streams  *streams
	requests *requests
	answers  *answers
	drain    *drain

	in           readBuffer
	framer       *http2.Framer
	decoder      *hpack.Decoder
	req          request
	last         repeat      // the block that req is of
	partial      headerBlock // a header block that goes on in CONTINUATION
	fragments    []byte      // what has arrived of it
	partialSince time.Time   // since when there is a part of a frame or header block
}

func (r *reader) init(l *link) {
	r.link = l
	r.in.buf = make([]byte, smallReadBuffer)
	r.framer = http2.NewFramer(nil, &r.in)
	r.framer.SetMaxReadFrameSize(minFrame)
	r.req.limit, r.req.handlers = uint32(l.conf.MaxHeaderListSize), l.handlers
	r.decoder = hpack.NewDecoder(headerTableSize, r.req.field)
	r.decoder.SetMaxStringLength(2 * l.conf.MaxHeaderListSize)
}

// take takes the frames that have arrived.
func (r *reader) take() {
	before := r.in.r
	r.countBuffers()
	r.frames()
	switch rest := len(r.in.bytes()); {
	case rest == 0 && r.partial.id == 0:
		r.partialSince = time.Time{}
	case r.partialSince.IsZero() || rest > 0 && r.in.r > before && r.partial.id == 0:
		r.partialSince = r.now
	}
	r.countBuffers()
}

// countBuffers accounts for the buffers, of which the smallest is not counted.
func (r *reader) countBuffers() {
	r.streams.readBytes = max(0, len(r.in.buf)-smallReadBuffer) + cap(r.fragments)
}

// frames takes all complete frames that have arrived.
func (r *reader) frames() {
	if !r.preface && !r.takePreface() {
		return
	}
	for r.state < stateClosing {
		b := r.in.bytes()
		if len(b) < frameHeader {
			return
		}
		length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if length <= minFrame && len(b) < frameHeader+length {
			return
		}
		// The Framer checks the size and the order of frames. It reads from the
		// buffer, where all of this frame is.
		fh, err := r.framer.ReadFrameHeader()
		if err != nil {
			r.frameError(fh, err)
			return
		}
		r.frame(fh)
	}
}

// takePreface takes the client's preface and reports whether all of it is there.
func (r *reader) takePreface() bool {
	const preface = http2.ClientPreface
	b := r.in.bytes()
	n := min(len(b), len(preface))
	if string(b[:n]) != preface[:n] {
		r.w.turnAway(b)
		return false
	}
	if n < len(preface) {
		return false
	}
	r.in.take(n)
	r.preface = true
	r.w.greet()
	return true
}

// frame handles one frame, whose payload is all in the buffer.
func (r *reader) frame(fh http2.FrameHeader) {
	if !r.settled && (fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck)) {
		r.w.fail(http2.ErrCodeProtocol, "the first frame is not SETTINGS")
		return
	}
	switch fh.Type {
	case http2.FrameData:
		r.data(fh, r.in.take(int(fh.Length)))
	case http2.FrameHeaders:
		r.headers(fh, r.in.take(int(fh.Length)))
	case http2.FrameContinuation:
		r.continuation(fh, r.in.take(int(fh.Length)))
	case http2.FrameSettings:
		if fh.Length > maxSettings {
			r.w.fail(http2.ErrCodeEnhanceYourCalm, "SETTINGS too large")
			return
		}
		r.control(fh)
	case http2.FramePriority, http2.FrameRSTStream, http2.FramePing, http2.FrameWindowUpdate:
		r.control(fh)
	case http2.FrameGoAway:
		r.in.take(int(fh.Length))
		r.goAway(fh)
	case http2.FramePushPromise:
		r.w.fail(http2.ErrCodeProtocol, "PUSH_PROMISE from a client")
	default:
		r.in.take(int(fh.Length))
		r.streams.pay(costIgnored)
	}
}

// control handles the small frames, which the Framer parses.
func (r *reader) control(fh http2.FrameHeader) {
	f, err := r.framer.ReadFrameForHeader(fh)
	if err != nil {
		r.frameError(fh, err)
		return
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		r.settings(f)
	case *http2.PingFrame:
		r.ping(f)
	case *http2.WindowUpdateFrame:
		r.answers.windowUpdate(f.StreamID, int64(f.Increment))
	case *http2.RSTStreamFrame:
		if r.neverOpened(f.StreamID) {
			r.w.fail(http2.ErrCodeProtocol, "RST_STREAM on an idle stream")
			return
		}
		r.streams.cancel(f.StreamID)
	case *http2.PriorityFrame:
		r.streams.pay(costIgnored)
		if f.StreamDep == f.StreamID {
			r.streams.streamError(f.StreamID, http2.ErrCodeProtocol)
		}
	}
}

// frameError ends the connection, or the stream, for what the Framer found.
func (r *reader) frameError(fh http2.FrameHeader, err error) {
	var stream http2.StreamError
	var whole http2.ConnectionError
	switch {
	case errors.As(err, &stream) && r.neverOpened(stream.StreamID):
		r.w.fail(http2.ErrCodeProtocol, "malformed "+fh.Type.String()+" on an idle stream")
	case errors.As(err, &stream):
		r.streams.streamError(stream.StreamID, stream.Code)
	case errors.Is(err, http2.ErrFrameTooLarge):
		r.w.fail(http2.ErrCodeFrameSize, "frame too large")
	case errors.As(err, &whole):
		r.w.fail(http2.ErrCode(whole), "malformed or unexpected "+fh.Type.String())
	default:
		r.w.fail(http2.ErrCodeProtocol, "malformed "+fh.Type.String())
	}
}

func (r *reader) data(fh http2.FrameHeader, payload []byte) {
	id, size := fh.StreamID, len(payload)
	p, ok := unpad(fh, payload)
	if !ok || r.neverOpened(id) {
		r.w.fail(http2.ErrCodeProtocol, "malformed DATA")
		return
	}
	if !r.requests.receiveConn(size) {
		return
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	if !end {
		r.requests.payData(len(p))
	}
	if st := r.streams.open[id]; st == nil || st.ended {
		r.lateData(st, id)
	} else {
		r.requests.data(st, p, size, end)
	}
}

// lateData handles DATA on a stream that is closed or half closed.
func (r *reader) lateData(st *stream, id uint32) {
	if !r.drain.takes(id) {
		return
	}
	r.streams.pay(costUseless)
	if st == nil {
		if known, cut := r.streams.closed.find(id); known && cut {
			return // it was on its way when we cut the stream off
		}
	}
	r.streams.streamError(id, http2.ErrCodeStreamClosed)
}

func (r *reader) headers(fh http2.FrameHeader, payload []byte) {
	p, ok := unpad(fh, payload)
	if !ok || fh.StreamID%2 == 0 {
		r.w.fail(http2.ErrCodeProtocol, "malformed HEADERS")
		return
	}
	block := headerBlock{id: fh.StreamID, end: fh.Flags.Has(http2.FlagHeadersEndStream)}
	if fh.Flags.Has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			r.w.fail(http2.ErrCodeProtocol, "malformed HEADERS")
			return
		}
		block.dependsOnItself = binary.BigEndian.Uint32(p)&(1<<31-1) == fh.StreamID
		p = p[5:]
	}
	if fh.Flags.Has(http2.FlagHeadersEndHeaders) {
		r.wholeBlock(block, p)
		return
	}
	r.partial, r.partialSince = block, r.now
	r.fragments = append(r.fragments[:0], p...)
}

func (r *reader) continuation(fh http2.FrameHeader, p []byte) {
	r.partial.frames++
	if len(p) == 0 {
		r.streams.pay(costUseless)
	}
	if r.partial.frames > maxContinuations || len(r.fragments)+len(p) > 2*r.conf.MaxHeaderListSize {
		r.counters.floods.Add(1)
		r.w.fail(http2.ErrCodeEnhanceYourCalm, "header block too large")
		return
	}
	if !r.streams.room(len(p)) {
		r.w.fail(http2.ErrCodeEnhanceYourCalm, "a header block of many frames while memory is short")
		return
	}
	r.fragments = append(r.fragments, p...)
	r.countBuffers()
	if fh.Flags.Has(http2.FlagContinuationEndHeaders) {
		block := r.partial
		r.partial = headerBlock{}
		r.wholeBlock(block, r.fragments)
		r.fragments = kept(r.fragments)
	}
}

// wholeBlock takes a whole header block: it opens a stream or ends a request.
func (r *reader) wholeBlock(block headerBlock, fragment []byte) {
	st := r.streams.open[block.id]
	if !r.decode(fragment, st != nil) {
		return
	}
	switch {
	case st != nil:
		r.requests.trailers(st, block, &r.req)
	case !r.drain.takes(block.id):
		r.lastID = max(r.lastID, block.id)
	case block.id <= r.lastID:
		r.lateHeaders(block.id)
	default:
		r.lastID = block.id
		r.requests.headers(block, &r.req)
	}
}

// decode fills r.req. Every block must be decoded, also one of no use, because the
// client's table follows from it.
func (r *reader) decode(fragment []byte, trailers bool) bool {
	if len(fragment) > 2*r.conf.MaxHeaderListSize {
		r.w.fail(http2.ErrCodeEnhanceYourCalm, "header block too large")
		return false
	}
	if !trailers && r.last.same(fragment) {
		return true
	}
	r.last.forget()
	r.req.reset(trailers)
	_, err := r.decoder.Write(fragment)
	if err == nil {
		err = r.decoder.Close()
	}
	if err != nil {
		r.w.fail(http2.ErrCodeCompression, "header block that cannot be decompressed")
		return false
	}
	r.req.finish()
	if !trailers {
		r.last.remember(fragment)
	}
	return true
}

// lateHeaders handles headers on a stream that is closed.
func (r *reader) lateHeaders(id uint32) {
	known, cut := r.streams.closed.find(id)
	switch {
	case cut:
		r.streams.pay(costUseless)
	case known:
		r.w.fail(http2.ErrCodeStreamClosed, "HEADERS on a closed stream")
	default:
		r.w.fail(http2.ErrCodeProtocol, "HEADERS on a stream below the last one")
	}
}

func (r *reader) settings(f *http2.SettingsFrame) {
	if f.IsAck() {
		r.streams.pay(costIgnored)
		return
	}
	first := !r.settled
	r.settled = true
	window := r.streams.sendWindow
	for i := range f.NumSettings() {
		if s := f.Setting(i); !r.setting(s, &window) {
			return
		}
	}
	cost := costSettings + r.answers.initialWindow(window)
	if r.state >= stateClosing {
		return
	}
	if !first {
		r.streams.payFrom(&r.streams.settingsPatience, cost)
	}
	r.w.settingsAck()
	if first {
		r.drain.settle()
	}
}

// setting takes one of the client's settings and reports whether it is valid. The
// initial window is left to the caller: only a frame's last one is worth a walk
// over all streams.
func (r *reader) setting(s http2.Setting, window *int64) bool {
	if err := s.Valid(); err != nil {
		code := http2.ErrCodeProtocol
		if s.ID == http2.SettingInitialWindowSize {
			code = http2.ErrCodeFlowControl
		}
		r.w.fail(code, "invalid SETTINGS")
		return false
	}
	switch s.ID {
	case http2.SettingInitialWindowSize:
		*window = int64(s.Val)
	case http2.SettingMaxFrameSize:
		r.answers.frameSize = min(int(s.Val), maxDataFrame)
	case http2.SettingHeaderTableSize:
		r.w.enc.resize(s.Val)
	}
	return r.state < stateClosing
}

func (r *reader) ping(f *http2.PingFrame) {
	if !f.IsAck() {
		r.streams.pay(costPing)
		r.w.ping(http2.FlagPingAck, f.Data)
		return
	}
	if f.Data == drainPing && r.state == stateDrainAnnounced {
		r.drain.finish()
		return
	}
	if f.Data != alivePing {
		r.streams.pay(costIgnored)
	}
}

// goAway handles the client's GOAWAY: it opens no more streams.
func (r *reader) goAway(fh http2.FrameHeader) {
	if fh.StreamID != 0 || fh.Length < 8 {
		r.w.fail(http2.ErrCodeProtocol, "malformed GOAWAY")
		return
	}
	r.streams.pay(costIgnored)
	r.drain.start()
}

// trim drops buffers that are empty.
func (r *reader) trim() {
	r.in.trim()
	r.last.drop()
	if r.partial.id == 0 {
		r.fragments = nil
	}
	r.countBuffers()
}
