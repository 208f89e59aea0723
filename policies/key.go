package policies

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	// MaxKey bounds keys in bytes. Longer ones end in a hash.
	MaxKey = 255
	// Default is the key of the policy for rules that have none of their own.
	Default = "*"

	// maxGiven bounds what Normalize reads.
	maxGiven = 64 << 10

	hashMark = '#'
	hashLen  = 1 + 2*sha256.Size
	maxStart = MaxKey - hashLen // what stays of a longer key
)

// plain are the bytes that stand for themselves in a value. A * is not one, so no request has the
// key of the default policy; nor is |, which separates the parts of a key.
var plain = func() (is [256]bool) {
	for c := range is {
		is[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("-._~/:@!$&'()+,;=", byte(c)) >= 0
	}
	return is
}()

// appendEscaped appends a value with its other bytes as %XX.
func appendEscaped(dst []byte, value string) []byte {
	const upper = "0123456789ABCDEF"
	for i := 0; i < len(value); i++ {
		if c := value[i]; plain[c] {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upper[c>>4], upper[c&15])
		}
	}
	return dst
}

// bounded returns key itself, or its beginning and its hash if it is longer than MaxKey. It may
// change key in place.
func bounded(key []byte) []byte {
	if len(key) <= MaxKey {
		return key
	}
	sum := sha256.Sum256(key)
	at := startOf(key)
	key = append(key[:at], hashMark)
	return hex.AppendEncode(key, sum[:])
}

// startOf returns how much of a long key stays: no more than maxStart, and no part of an escape.
func startOf(key []byte) int {
	for at := maxStart; at > maxStart-3; at-- {
		if key[at-1] != '%' && key[at-2] != '%' {
			return at
		}
	}
	return maxStart - 3
}

// Normalize returns the one spelling of a key: parts with | between them, whose bytes other than
// letters, digits and -._~/:@!$&'()+,;= are written %XX; or *, the key of the default policy.
// A key of more than 255 bytes ends in # and its hash. The key that it returns is returned
// unchanged.
func Normalize(key string) (string, error) {
	switch {
	case key == "":
		return "", errors.New("the key is empty")
	case len(key) > maxGiven:
		return "", fmt.Errorf("the key has %d bytes, more than %d", len(key), maxGiven)
	case key == Default || hashed(key):
		return key, nil
	}
	out := make([]byte, 0, len(key))
	for i := 0; i < len(key); i++ {
		switch c := key[i]; c {
		case '|':
			out = append(out, c)
		case '%':
			if i+2 >= len(key) {
				return "", fmt.Errorf("the key has %q at its end, which is no escape: write %%25 for a percent sign", key[i:])
			}
			b, err := hex.DecodeString(key[i+1 : i+3])
			if err != nil {
				return "", fmt.Errorf("the key has %q at byte %d, which is no escape: write %%25 for a percent sign", key[i:i+3], i)
			}
			out, i = appendEscaped(out, string(b)), i+2
		default:
			out = appendEscaped(out, key[i:i+1])
		}
	}
	return string(bounded(out)), nil
}

// KeyOf returns the key that stands for a name: other bytes than those that [Normalize] leaves
// alone are written %XX, also % itself.
func KeyOf(name string) (string, error) {
	if name == "" || len(name) > maxGiven {
		return "", fmt.Errorf("a name of %d bytes has no key", len(name))
	}
	return string(bounded(appendEscaped(nil, name))), nil
}

// hashed reports whether a key is one that ends in its hash.
func hashed(key string) bool {
	at := len(key) - hashLen
	if at < maxStart-3 || len(key) > MaxKey || key[at] != hashMark {
		return false
	}
	for i, c := range []byte(key) {
		switch {
		case i < at && !plain[c] && c != '|' && c != '%':
			return false
		case i > at && (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}
