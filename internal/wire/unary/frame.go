package unary

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// Sizes that HTTP/2 sets, in bytes.
const (
	frameHeader   = 9        // the header of a frame
	minFrame      = 16 << 10 // the frame size that everyone must take
	defaultWindow = 65535    // the first window of a connection and of each stream
	maxWindow     = 1<<31 - 1
)

// The data of our own pings, by which their answers are known.
var (
	alivePing = [8]byte{'a', 'l', 'i', 'v', 'e'}
	drainPing = [8]byte{'d', 'r', 'a', 'i', 'n'}
)

// Frames are appended to a buffer, because all frames that a slice of calls leads
// to are sent with one write.

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

func appendSetting(b []byte, id http2.SettingID, value uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(id))
	return binary.BigEndian.AppendUint32(b, value)
}

// appendMessagePrefix appends what precedes a message of n bytes.
func appendMessagePrefix(b []byte, n int) []byte {
	return append(b, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// messagePrefix is how many bytes precede a message: one that reports whether it is
// compressed, and its length.
const messagePrefix = 5

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
