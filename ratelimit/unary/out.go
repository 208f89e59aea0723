package unary

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// Frames out. They are appended to a buffer, because all that a slice of calls
// leads to goes out with one write.

// appendFrame appends the header of a frame whose payload follows.
func appendFrame(b []byte, t http2.FrameType, flags http2.Flags, id uint32, length int) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(t), byte(flags),
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

// setLength completes the frame that starts at index start of b and ends with b.
func setLength(b []byte, start int) []byte {
	n := len(b) - start - frameHeader
	b[start], b[start+1], b[start+2] = byte(n>>16), byte(n>>8), byte(n)
	return b
}

func appendWindowUpdate(b []byte, id uint32, n int) []byte {
	b = appendFrame(b, http2.FrameWindowUpdate, 0, id, 4)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendReset(b []byte, id uint32, code http2.ErrCode) []byte {
	b = appendFrame(b, http2.FrameRSTStream, 0, id, 4)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendPing(b []byte, flags http2.Flags, data [8]byte) []byte {
	return append(appendFrame(b, http2.FramePing, flags, 0, 8), data[:]...)
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode, reason string) []byte {
	b = appendFrame(b, http2.FrameGoAway, 0, 0, 8+len(reason))
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, reason...)
}

// appendGreeting appends the server's preface: its settings, and the
// connection's window.
func (c *conn) appendGreeting(b []byte) []byte {
	start := len(b)
	b = appendFrame(b, http2.FrameSettings, 0, 0, 0)
	b = appendSetting(b, http2.SettingMaxConcurrentStreams, uint32(c.s.conf.MaxConcurrentStreams))
	b = appendSetting(b, http2.SettingMaxHeaderListSize, uint32(c.s.conf.MaxHeaderListSize))
	b = setLength(b, start)
	return appendWindowUpdate(b, 0, connWindow-defaultWindow)
}

func appendSetting(b []byte, id http2.SettingID, value uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(id))
	return binary.BigEndian.AppendUint32(b, value)
}

// appendHead appends the HEADERS that begin a successful answer.
func (c *conn) appendHead(b []byte, id uint32) []byte {
	start := len(b)
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, id, 0)
	b = c.enc.appendHead(c.enc.begin(b), 200)
	return setLength(b, start)
}

// appendTrailers appends the HEADERS that end a successful answer.
func (c *conn) appendTrailers(b []byte, id uint32) []byte {
	start := len(b)
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id, 0)
	b = c.enc.appendOK(c.enc.begin(b))
	return setLength(b, start)
}

// appendFailure appends the HEADERS that are all of a failed call's answer.
func (c *conn) appendFailure(b []byte, id uint32, httpStatus int, s *Status) []byte {
	start := len(b)
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id, 0)
	b = c.enc.appendHead(c.enc.begin(b), httpStatus)
	b = c.enc.appendStatus(b, s)
	if s.Code == Unimplemented {
		b = appendText(append(b, 0), "grpc-accept-encoding")
		b = appendText(b, "identity,gzip")
	}
	return setLength(b, start)
}
