package descriptors

import "bytes"

// Servers differ in how they read unusual paths: some decode %2F or decode twice, some cut ;name=value, some take a
// backslash for a slash, stop at %00, or accept overlong UTF-8 (RFC 3629, section 10). The path as the most generous
// server reads it is matched, too, so that none of these spellings leads around a rule.

// ambiguous reports whether servers may read path differently. Most paths are not ambiguous.
func ambiguous(path string) bool {
	for i := range len(path) {
		switch c := path[i]; {
		case c == ';' || c == '\\' || overlong(c):
			return true
		case c != '%':
		case i+1 < len(path) && path[i+1]|0x20 == 'u':
			return true
		case i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]):
			switch d := unhex(path[i+1])<<4 | unhex(path[i+2]); {
			case d == '/' || d == '\\' || d == ';' || d == '%' || d == 0 || overlong(d):
				return true
			}
		}
	}
	return false
}

// overlong reports whether c may begin a longer encoding of an ASCII character than UTF-8 has.
func overlong(c byte) bool { return c == 0xC0 || c == 0xC1 || c == 0xE0 || c == 0xF0 }

// maxDecodings is how often a path is decoded: servers behind proxies decode it two or three times.
const maxDecodings = 4

// loosePaths calls f with the paths, in normal form, that generous servers read path as. Tomcat and others cut matrix
// parameters before they decode: an escaped slash in one separates nothing. A proxy before them may decode, too.
func loosePaths(path string, f func(string)) {
	b := []byte(path)
	for n := range maxDecodings {
		if bytes.IndexByte(b, ';') >= 0 {
			endings(withoutParams(b), maxDecodings-n, f)
		}
		before := len(b)
		if b = decodeOnce(b); len(b) == before {
			break
		}
	}
	endings(b, 0, f)
}

// endings decodes path up to decodings times, and calls f with what comes of it: without what follows the first NUL,
// and without the NUL alone.
func endings(path []byte, decodings int, f func(string)) {
	for before := 0; decodings > 0 && before != len(path); decodings-- {
		before, path = len(path), decodeOnce(path)
	}
	for i, c := range path {
		if c == '\\' {
			path[i] = '/'
		}
	}
	cut, _, found := bytes.Cut(path, []byte{0})
	one := normalPath(string(cut), true)
	f(one)
	if found {
		if other := normalPath(string(bytes.ReplaceAll(path, []byte{0}, nil)), true); other != one {
			f(other)
		}
	}
}

// withoutParams returns path without what is between a semicolon and the next slash.
func withoutParams(path []byte) []byte {
	out := make([]byte, 0, len(path))
	inParam := false
	for _, c := range path {
		if inParam = c == ';' || inParam && c != '/'; !inParam {
			out = append(out, c)
		}
	}
	return out
}

// decodeOnce decodes percent escapes, those of IIS (%u002f) included, and overlong UTF-8, in place.
func decodeOnce(path []byte) []byte {
	out := path[:0]
	for i := 0; i < len(path); {
		c, size := escapedByte(path[i:])
		if overlong(c) {
			if short, n := shortForm(path[i:]); n > 0 {
				c, size = short, n
			}
		}
		out = append(out, c)
		i += size
	}
	return out
}

// escapedByte returns the first byte of s, which may be escaped, and how long it is there.
func escapedByte(s []byte) (c byte, size int) {
	if s[0] == '%' && len(s) > 2 && isHex(s[1]) && isHex(s[2]) {
		return unhex(s[1])<<4 | unhex(s[2]), 3
	}
	if len(s) > 5 && s[0] == '%' && s[1]|0x20 == 'u' && s[2] == '0' && s[3] == '0' && isHex(s[4]) && isHex(s[5]) {
		return unhex(s[4])<<4 | unhex(s[5]), 6
	}
	return s[0], 1
}

// shortForm returns the ASCII character that s begins with in an overlong encoding, and how long that is; 0 if it
// begins with none.
func shortForm(s []byte) (c byte, size int) {
	first, size := escapedByte(s)
	more := map[byte]int{0xC0: 1, 0xC1: 1, 0xE0: 2, 0xF0: 3}[first]
	code := int(first & 1)
	for range more {
		if size >= len(s) {
			return 0, 0
		}
		next, n := escapedByte(s[size:])
		if next&0xC0 != 0x80 {
			return 0, 0
		}
		code, size = code<<6|int(next&0x3F), size+n
	}
	if code > 0x7F {
		return 0, 0
	}
	return byte(code), size
}
