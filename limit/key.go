package limit

import (
	"crypto/sha256"
	"encoding/base64"
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
// So is one built by [GroupIn], which is kept together with other groups.
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

// maxHalf bounds each half of a group that [GroupIn] makes.
const maxHalf = 60

// GroupIn returns a group whose keys a store that is spread over partitions keeps together with those of all groups
// that have the same partition. Both halves are encodings made by AppendPart, or, if they are longer than 60 bytes,
// "h" and their SHA-256 in base64. No other group begins with "+".
func GroupIn(partition, rest []byte) string {
	partition, rest = half(partition), half(rest)
	var buf [MaxGroupLen]byte
	return string(append(AppendPart(append(buf[:0], '+'), string(partition)), rest...))
}

func half(encoding []byte) []byte {
	if len(encoding) <= maxHalf {
		return encoding
	}
	sum := sha256.Sum256(encoding)
	return base64.RawURLEncoding.AppendEncode([]byte{'h'}, sum[:])
}

// Partition returns what names the partition of a group's keys, and the rest of the group: of a group that [GroupIn]
// made its halves, where "+" and a length stand before the first; of any other all of it, and nothing.
func Partition(group string) (partition, rest string) {
	_, at := halves(group)
	return group[:at], group[at:]
}

// Encoding returns the encoding that a group was made of; of one that is a hash something else that no AppendPart has
// made.
func Encoding(group string) string {
	from, _ := halves(group)
	return group[from:]
}

// halves returns where the halves begin that [GroupIn] made a group of. Another group is all the first half.
func halves(group string) (first, second int) {
	if !strings.HasPrefix(group, "+") {
		return 0, len(group)
	}
	length, _, _ := strings.Cut(group[1:], ":")
	n, err := strconv.Atoi(length)
	first = len("+") + len(length) + len(":")
	if err != nil || n < 0 || first+n > len(group) {
		return 0, len(group)
	}
	return first, first + n
}

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
