package unary

import (
	"strconv"

	"golang.org/x/net/http2"
)

// headerTableSize is the size of the HPACK tables in both directions, in
// bytes: what HTTP/2 has by default, and the most that we would use.
const headerTableSize = 4096

// An encoder writes the HEADERS frames of answers. They are always the same
// few fields, so the two that each successful answer has are put into the
// peer's table once and cost one byte afterwards; nothing else is put there.
type encoder struct {
	plain       bool   // the peer's table is too small: use none
	update      bool   // tell the peer the new size of the table first
	size        uint32 // of the table that we use
	inserted    uint64 // how many fields are in the table
	contentType uint64 // which of them it is, counted from 1, or 0
	statusOK    uint64
}

// tableNeed is the size of our two fields in a table: names, values and 32
// bytes each.
const tableNeed = 12 + 16 + 32 + 11 + 1 + 32

// Indexes in HPACK's static table.
const (
	static200         = 8
	staticStatus      = 8 // its name
	staticContentType = 31
	staticCount       = 61
)

// resize takes the peer's bound on the table. A larger one than ours changes
// nothing; a smaller one must be confirmed at the next block.
func (e *encoder) resize(limit uint32) {
	if limit >= e.size {
		return
	}
	e.update, e.size = true, limit
	if limit < tableNeed {
		e.size, e.plain = 0, true
		e.contentType, e.statusOK = 0, 0
	}
}

// begin starts a block.
func (e *encoder) begin(b []byte) []byte {
	if e.update {
		e.update = false
		b = appendInt(b, 0x20, 5, uint64(e.size))
	}
	return b
}

// appendHead appends the fields that begin an answer.
func (e *encoder) appendHead(b []byte, httpStatus int) []byte {
	if httpStatus == 200 {
		b = append(b, 0x80|static200)
	} else {
		b = appendInt(b, 0, 4, staticStatus)
		b = appendText(b, strconv.Itoa(httpStatus))
	}
	if e.contentType != 0 {
		return appendInt(b, 0x80, 7, e.index(e.contentType))
	}
	b = e.appendNew(b, staticContentType, &e.contentType)
	return appendText(b, "application/grpc")
}

// appendOK appends the status of a successful call.
func (e *encoder) appendOK(b []byte) []byte {
	if e.statusOK != 0 {
		return appendInt(b, 0x80, 7, e.index(e.statusOK))
	}
	b = e.appendNew(b, 0, &e.statusOK)
	b = appendText(b, "grpc-status")
	return appendText(b, "0")
}

// appendStatus appends the status of a failed call.
func (e *encoder) appendStatus(b []byte, s *Status) []byte {
	b = appendText(append(b, 0), "grpc-status")
	var code [10]byte
	b = appendText(b, string(strconv.AppendUint(code[:0], uint64(s.Code), 10)))
	if s.Message == "" {
		return b
	}
	b = appendText(append(b, 0), "grpc-message")
	var text [3 * 64]byte
	encoded := appendPercentEncoded(text[:0], s.Message)
	b = appendInt(b, 0, 7, uint64(len(encoded)))
	return append(b, encoded...)
}

// appendNew starts a literal field. name is the index of its name in the static table; if it
// is 0, the name follows. The field is added to the dynamic table, if the encoder has one.
func (e *encoder) appendNew(b []byte, name uint64, place *uint64) []byte {
	if e.plain {
		return appendInt(b, 0, 4, name)
	}
	e.inserted++
	*place = e.inserted
	return appendInt(b, 0x40, 6, name)
}

func (e *encoder) index(nth uint64) uint64 { return staticCount + 1 + e.inserted - nth }

// appendInt appends an HPACK integer whose first byte has the given pattern
// above a prefix of that many bits.
func appendInt(b []byte, pattern byte, bits int, n uint64) []byte {
	limit := uint64(1)<<bits - 1
	if n < limit {
		return append(b, pattern|byte(n))
	}
	b = append(b, pattern|byte(limit))
	for n -= limit; n >= 0x80; n >>= 7 {
		b = append(b, 0x80|byte(n))
	}
	return append(b, byte(n))
}

// appendText appends an HPACK string without compression.
func appendText(b []byte, s string) []byte {
	return append(appendInt(b, 0, 7, uint64(len(s))), s...)
}

// headFrame appends the HEADERS that begin a successful answer.
func (e *encoder) headFrame(b []byte, id uint32) []byte {
	start := len(b)
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, id, 0)
	b = e.appendHead(e.begin(b), 200)
	return setLength(b, start)
}

// trailersFrame appends the HEADERS that end a successful answer.
func (e *encoder) trailersFrame(b []byte, id uint32) []byte {
	start := len(b)
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id, 0)
	b = e.appendOK(e.begin(b))
	return setLength(b, start)
}

// failureFrame appends the HEADERS that are all of a failed call's answer.
func (e *encoder) failureFrame(b []byte, id uint32, httpStatus int, s *Status) []byte {
	start := len(b)
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, id, 0)
	b = e.appendHead(e.begin(b), httpStatus)
	b = e.appendStatus(b, s)
	if s.Code == Unimplemented {
		b = appendText(append(b, 0), "grpc-accept-encoding")
		b = appendText(b, "identity,gzip")
	}
	return setLength(b, start)
}
