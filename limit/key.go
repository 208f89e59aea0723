package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// A Key names one counter.
//
// Group says whose counter it is (domain and descriptor entries) and Limit
// which of the limits that apply there. They are kept apart because all limits
// of one group share the Group string, and because a store that is spread over
// partitions keeps a group together.
//
// A group built by [AppendPart] and [MakeGroup] is an injective encoding:
// different parts give different groups. It is at most [MaxGroupLen] bytes.
type Key struct {
	Group string
	Limit string
}

// MaxGroupLen bounds Key.Group. Longer encodings are replaced by a hash, so
// that a client's long values neither fill the store nor show up in it.
const MaxGroupLen = 128

// AppendPart appends part to dst as a netstring without the comma,
// "<length>:<part>", so that parts cannot run into each other.
func AppendPart(dst []byte, part string) []byte {
	if len(part) < 10 { // as most are
		return append(append(dst, '0'+byte(len(part)), ':'), part...)
	}
	if n := len(part); n < 100 {
		return append(append(dst, '0'+byte(n/10), '0'+byte(n%10), ':'), part...)
	}
	dst = strconv.AppendInt(dst, int64(len(part)), 10)
	dst = append(dst, ':')
	return append(dst, part...)
}

// MakeGroup returns the group for an encoding made by AppendPart: the encoding
// itself, or "h" and its SHA-256 in hex when it is longer than MaxGroupLen.
// Encodings start with a digit, so the two forms differ.
func MakeGroup(encoding []byte) string {
	if len(encoding) <= MaxGroupLen {
		return string(encoding)
	}
	sum := sha256.Sum256(encoding)
	var buf [1 + 2*sha256.Size]byte
	buf[0] = 'h'
	hex.Encode(buf[1:], sum[:])
	return string(buf[:])
}

// IsRawGroup reports whether g is one that RawGroup made of a value that is not too
// long.
func IsRawGroup(g string) bool { return strings.HasPrefix(g, "=") }

// RawGroup returns a group that is value itself behind "=", for counters that
// are shared with other programs under a name of the operator's choice. With
// its "=" it is longer than MaxGroupLen for values of that length or more; they
// are replaced by "h" and the SHA-256 of "=" and the value. No encoding starts
// with "=", so it differs from every group of an encoding.
func RawGroup(value string) string {
	return MakeGroup([]byte("=" + value))
}

// MaxTextGroupLen bounds the groups that [TextGroup] makes.
const MaxTextGroupLen = 2048

// TextGroup returns a group that is text itself behind "~": for counters that are
// shared with a program that calls them by such a text. With its "~" it is no longer
// than [MaxTextGroupLen]; longer ones are replaced by "h" and the SHA-256 of "~" and
// the text. No other group begins with "~".
func TextGroup(text []byte) string {
	if len(text) < MaxTextGroupLen {
		return "~" + string(text)
	}
	sum := sha256.Sum256(append([]byte{'~'}, text...))
	return "h" + hex.EncodeToString(sum[:])
}

// TextOf returns the text of a group that TextGroup made of one that is not too long.
func TextOf(group string) (text string, ok bool) { return strings.CutPrefix(group, "~") }
