package unary

import "bytes"

// maxRepeat is the size of the longest header block that is remembered, in bytes.
// Envoy's have about a hundred.
const maxRepeat = 256

// A repeat remembers the last header block of a connection. A block that is equal
// to the one before says the same, unless the one before changed the table that
// both refer to. A proxy sends nothing but such blocks.
type repeat struct {
	block   []byte // empty: nothing is remembered
	checked bool   // keepsTable(block) is known to be true
}

// same reports whether block says what the last one said, and may be passed over.
func (r *repeat) same(block []byte) bool {
	if len(block) == 0 || !bytes.Equal(block, r.block) {
		return false
	}
	r.checked = r.checked || keepsTable(block)
	return r.checked
}

// remember makes block the last one.
func (r *repeat) remember(block []byte) {
	r.checked = false
	if len(block) > maxRepeat {
		block = nil
	}
	r.block = append(r.block[:0], block...)
}

// forget makes the next block be decoded.
func (r *repeat) forget() { r.block = r.block[:0] }

// drop is forget, and frees memory.
func (r *repeat) drop() { r.block = nil }

// keepsTable reports whether a header block that can be decoded leaves the table as
// it is: it has indexes, and literals that are not put into the table (RFC 7541,
// section 6), in forms that this function reads.
func keepsTable(block []byte) bool {
	for len(block) > 0 {
		switch first := block[0]; {
		case first >= 0x80: // an index
			if first == 0xff {
				return false // that goes on
			}
			block = block[1:]
		case first >= 0x20: // a literal for the table, or a new size of it
			return false
		default: // a literal, its name an index or a string, its value a string
			named := first & 0x0f
			if named == 0x0f {
				return false
			}
			block = block[1:]
			if named == 0 {
				block = afterString(block)
			}
			block = afterString(block)
			if block == nil {
				return false
			}
		}
	}
	return true
}

// afterString returns what follows the string that b begins with; nil if b does not
// begin with a string of less than 127 bytes.
func afterString(b []byte) []byte {
	if len(b) == 0 || b[0]&0x7f == 0x7f || len(b) <= int(b[0]&0x7f) {
		return nil
	}
	return b[1+int(b[0]&0x7f):]
}
