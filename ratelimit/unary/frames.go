package unary

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/http2"
)

// Frames in. All of this runs in the read loop, under the connection's mutex.

const (
	frameHeader = 9 // bytes
	preface     = http2.ClientPreface
)

// frames takes all complete frames that have arrived.
func (c *conn) frames() {
	if !c.greeted && !c.greet() {
		return
	}
	for c.state < stateClosing {
		b := c.in.bytes()
		if len(b) < frameHeader {
			return
		}
		length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if length <= minFrame && len(b) < frameHeader+length {
			return
		}
		// The Framer checks the size and the order of frames. It reads from
		// the inbox, where all of this frame is.
		fh, err := c.fr.ReadFrameHeader()
		if err != nil {
			c.frameError(fh, err)
			return
		}
		c.frame(fh)
	}
}

// greet takes the client's preface and tells whether all of it is there.
func (c *conn) greet() bool {
	b := c.in.bytes()
	n := min(len(b), len(preface))
	if string(b[:n]) != preface[:n] {
		c.kill("no HTTP/2 preface")
		return false
	}
	if n < len(preface) {
		return false
	}
	c.in.take(n)
	c.greeted = true
	c.out = c.appendGreeting(c.out)
	return true
}

// frame handles one frame, whose payload is all in the inbox.
func (c *conn) frame(fh http2.FrameHeader) {
	if !c.settled && (fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck)) {
		c.fail(http2.ErrCodeProtocol, "the first frame is not SETTINGS")
		return
	}
	switch fh.Type {
	case http2.FrameData:
		c.data(fh, c.in.take(int(fh.Length)))
	case http2.FrameHeaders:
		c.headers(fh, c.in.take(int(fh.Length)))
	case http2.FrameContinuation:
		c.continuation(fh, c.in.take(int(fh.Length)))
	case http2.FrameSettings:
		if fh.Length > maxControl {
			c.fail(http2.ErrCodeEnhanceYourCalm, "SETTINGS too large")
			return
		}
		c.control(fh)
	case http2.FramePriority, http2.FrameRSTStream, http2.FramePing, http2.FrameWindowUpdate:
		c.control(fh)
	case http2.FrameGoAway:
		c.in.take(int(fh.Length))
		c.peerLeaves(fh)
	case http2.FramePushPromise:
		c.fail(http2.ErrCodeProtocol, "PUSH_PROMISE from a client")
	default:
		c.in.take(int(fh.Length))
		c.pay(costIgnored)
	}
}

// control handles the small frames, which the Framer parses.
func (c *conn) control(fh http2.FrameHeader) {
	f, err := c.fr.ReadFrameForHeader(fh)
	if err != nil {
		c.frameError(fh, err)
		return
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		c.settings(f)
	case *http2.PingFrame:
		c.ping(f)
	case *http2.WindowUpdateFrame:
		c.windowUpdate(f.StreamID, int64(f.Increment))
	case *http2.RSTStreamFrame:
		c.rst(f)
	case *http2.PriorityFrame:
		c.pay(costIgnored)
		if f.StreamDep == f.StreamID {
			c.streamError(f.StreamID, http2.ErrCodeProtocol)
		}
	}
}

// frameError ends the connection, or the stream, for what the Framer found.
func (c *conn) frameError(fh http2.FrameHeader, err error) {
	var stream http2.StreamError
	var whole http2.ConnectionError
	switch {
	case errors.As(err, &stream) && c.idle(stream.StreamID):
		c.fail(http2.ErrCodeProtocol, "malformed "+fh.Type.String()+" on an idle stream")
	case errors.As(err, &stream):
		c.streamError(stream.StreamID, stream.Code)
	case errors.Is(err, http2.ErrFrameTooLarge):
		c.fail(http2.ErrCodeFrameSize, "frame too large")
	case errors.As(err, &whole):
		c.fail(http2.ErrCode(whole), "malformed or unexpected "+fh.Type.String())
	default:
		c.fail(http2.ErrCodeProtocol, "malformed "+fh.Type.String())
	}
}

// idle tells whether a stream was never opened.
func (c *conn) idle(id uint32) bool { return id > c.lastID || id%2 == 0 }

// unpad takes the padding off a DATA or HEADERS payload.
func unpad(fh http2.FrameHeader, p []byte) ([]byte, bool) {
	if !fh.Flags.Has(http2.FlagDataPadded) { // the same bit in both
		return p, true
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}

func (c *conn) data(fh http2.FrameHeader, payload []byte) {
	id, size := fh.StreamID, len(payload)
	p, ok := unpad(fh, payload)
	if !ok || c.idle(id) {
		c.fail(http2.ErrCodeProtocol, "malformed DATA")
		return
	}
	if !c.received(size) {
		return
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	switch {
	case end:
	case len(p) == 0:
		c.pay(costUseless)
	case len(p) < smallData:
		c.pay(costSmallData)
	}
	st := c.streams[id]
	if st == nil || st.ended {
		c.late(st, id)
		return
	}
	if !c.receivedOn(st, size, end) {
		return
	}
	st.received += int64(len(p))
	if st.refusal.http == 0 && !c.body(st, p) {
		return
	}
	if end {
		c.requestEnds(st)
	}
}

// body adds to a request's message, and tells whether the stream lives on.
func (c *conn) body(st *stream, p []byte) bool {
	status := c.hold(st, len(p))
	if status == nil && st.h != nil && st.h == c.s.standIn {
		st.body = append(st.body, p...)
	} else if status == nil {
		status = st.add(p, c.s.conf.MaxMessageSize)
	}
	if status != nil {
		c.refuse(st, status)
		return false
	}
	return true
}

// late handles DATA on a stream that is closed or half closed.
func (c *conn) late(st *stream, id uint32) {
	if c.leftOut(id) {
		return
	}
	c.pay(costUseless)
	if st == nil {
		if known, cut := c.closed.find(id); known && cut {
			return // it was on its way when we cut the stream off
		}
	}
	c.streamError(id, http2.ErrCodeStreamClosed)
}

func (c *conn) headers(fh http2.FrameHeader, payload []byte) {
	p, ok := unpad(fh, payload)
	if !ok || fh.StreamID%2 == 0 {
		c.fail(http2.ErrCodeProtocol, "malformed HEADERS")
		return
	}
	block := headerBlock{id: fh.StreamID, end: fh.Flags.Has(http2.FlagHeadersEndStream)}
	if fh.Flags.Has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			c.fail(http2.ErrCodeProtocol, "malformed HEADERS")
			return
		}
		block.selfish = binary.BigEndian.Uint32(p)&(1<<31-1) == fh.StreamID
		p = p[5:]
	}
	if fh.Flags.Has(http2.FlagHeadersEndHeaders) {
		c.wholeBlock(block, p)
		return
	}
	c.partial, c.partialSince = block, c.now
	c.fragments = append(c.fragments[:0], p...)
}

// A headerBlock is what is known of a header block without its fields.
type headerBlock struct {
	id      uint32
	end     bool // of the request
	selfish bool // the stream is said to depend on itself
	frames  int  // CONTINUATION frames
}

func (c *conn) continuation(fh http2.FrameHeader, p []byte) {
	c.partial.frames++
	if len(p) == 0 {
		c.pay(costUseless)
	}
	if c.partial.frames > maxContinuations || len(c.fragments)+len(p) > 2*c.s.conf.MaxHeaderListSize {
		c.s.stats.floods.Add(1)
		c.fail(http2.ErrCodeEnhanceYourCalm, "header block too large")
		return
	}
	c.fragments = append(c.fragments, p...)
	if fh.Flags.Has(http2.FlagContinuationEndHeaders) {
		block := c.partial
		c.partial = headerBlock{}
		c.wholeBlock(block, c.fragments)
		c.fragments = kept(c.fragments)
	}
}

func (c *conn) settings(f *http2.SettingsFrame) {
	if f.IsAck() {
		c.pay(costIgnored)
		return
	}
	first := !c.settled
	c.settled = true
	window := c.peerWindow
	for i := range f.NumSettings() {
		if s := f.Setting(i); !c.setting(s, &window) {
			return
		}
	}
	cost := costSettings
	if window != c.peerWindow {
		cost += (len(c.streams) + len(c.blocked)) / walkPerPoint
		c.initialWindow(window)
	}
	if c.state >= stateClosing {
		return
	}
	if !first {
		c.payFrom(&c.settingsPatience, cost)
	}
	c.out = appendFrame(c.out, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	if first && !c.drainAt.IsZero() {
		c.startDrain()
	}
}

// setting takes one of the client's settings and tells whether it is valid. The
// initial window is left to the caller: only a frame's last one is worth a walk
// over all streams.
func (c *conn) setting(s http2.Setting, window *int64) bool {
	if err := s.Valid(); err != nil {
		code := http2.ErrCodeProtocol
		if s.ID == http2.SettingInitialWindowSize {
			code = http2.ErrCodeFlowControl
		}
		c.fail(code, "invalid SETTINGS")
		return false
	}
	switch s.ID {
	case http2.SettingInitialWindowSize:
		*window = int64(s.Val)
	case http2.SettingMaxFrameSize:
		c.frameSize = min(int(s.Val), maxDataFrame)
	case http2.SettingHeaderTableSize:
		c.enc.resize(s.Val)
	}
	return c.state < stateClosing
}

func (c *conn) ping(f *http2.PingFrame) {
	if !f.IsAck() {
		c.pay(costPing)
		c.out = appendPing(c.out, http2.FlagPingAck, f.Data)
		return
	}
	if f.Data == drainPing && c.state == stateLeaving {
		c.leave()
		return
	}
	if f.Data != alivePing {
		c.pay(costIgnored)
	}
}

// rst ends a call that the client has given up.
func (c *conn) rst(f *http2.RSTStreamFrame) {
	if c.idle(f.StreamID) {
		c.fail(http2.ErrCodeProtocol, "RST_STREAM on an idle stream")
		return
	}
	st := c.streams[f.StreamID]
	if st == nil {
		c.pay(costUseless)
		if undo := c.receipts.take(f.StreamID); undo != nil {
			undo()
		}
		return
	}
	if !st.handed { // the handler's work has its own bounds
		c.pay(costReset)
	}
	c.cancelled++
	c.drop(st, false)
}

// peerLeaves handles the client's GOAWAY: it opens no more streams.
func (c *conn) peerLeaves(fh http2.FrameHeader) {
	if fh.StreamID != 0 || fh.Length < 8 {
		c.fail(http2.ErrCodeProtocol, "malformed GOAWAY")
		return
	}
	c.pay(costIgnored)
	c.startDrain()
}
