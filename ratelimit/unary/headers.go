package unary

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
)

// headerTableSize is the size of the HPACK tables in both directions, in
// bytes: what HTTP/2 has by default, and the most that we would use.
const headerTableSize = 4096

// A request is what a request's header block says. One per connection is
// reused; the strings in it are not.
type request struct {
	limit    uint32 // of the header list, in bytes as HPACK counts them
	trailers bool   // the block ends a request
	find     func(path string) *handler

	size      uint32
	tooLarge  bool
	malformed string // what is wrong with it as HTTP/2, or empty

	pseudo      pseudoHeaders
	regular     bool // a header that is not a pseudo-header came
	h           *handler
	method      string
	path        string
	contentType string
	encoding    string
	timeout     string
	length      int64    // content-length, or -1
	metadata    []string // values of h.Metadata
}

type pseudoHeaders uint8

const (
	pseudoMethod pseudoHeaders = 1 << iota
	pseudoScheme
	pseudoPath
	pseudoAuthority

	pseudoRequired = pseudoMethod | pseudoScheme | pseudoPath
)

func (q *request) reset(trailers bool) {
	*q = request{limit: q.limit, find: q.find, metadata: q.metadata[:0], trailers: trailers, length: -1}
}

// field takes one header. Once the list is too long it only counts.
func (q *request) field(f hpack.HeaderField) {
	if q.size += f.Size(); q.size > q.limit {
		q.tooLarge = true
		return
	}
	if len(f.Name) > 0 && f.Name[0] == ':' {
		q.pseudoField(f.Name, f.Value)
		return
	}
	q.regular = true
	if q.h != nil {
		q.keep(f.Name, f.Value)
	}
	switch f.Name {
	case "content-type":
		q.contentType = f.Value
	case "te":
		if f.Value != "trailers" {
			q.fail("te is not trailers")
		}
	case "grpc-timeout":
		q.timeout = f.Value
	case "grpc-encoding":
		q.encoding = f.Value
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || q.length >= 0 && q.length != int64(n) {
			q.fail("content-length is wrong")
		}
		q.length = int64(n)
	case "user-agent", "grpc-accept-encoding": // on every call; known to be well-formed
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		q.fail("header that belongs to HTTP/1")
	default:
		if !validName(f.Name) {
			q.fail("header name with a character that is not allowed")
		}
	}
}

func (q *request) pseudoField(name, value string) {
	var bit pseudoHeaders
	switch name {
	case ":method":
		bit, q.method = pseudoMethod, value
	case ":scheme":
		bit = pseudoScheme
	case ":path":
		bit, q.path = pseudoPath, value
		if q.h = q.find(value); q.h != nil {
			for range q.h.Metadata {
				q.metadata = append(q.metadata, "")
			}
		}
		if value == "" {
			q.fail("empty :path")
		}
	case ":authority":
		bit = pseudoAuthority
	default:
		q.fail("unknown pseudo-header")
	}
	switch {
	case q.trailers:
		q.fail("pseudo-header in trailers")
	case q.regular:
		q.fail("pseudo-header after other headers")
	case q.pseudo&bit != 0:
		q.fail("pseudo-header twice")
	}
	q.pseudo |= bit
}

// maxMetadata bounds what is kept of a header for the handler, in bytes: on the
// wire a repeated header is one byte. What does not fit is left out and does not
// fail the call, because the value may come from the client's own client, who
// must not be able to have it fail.
const maxMetadata = 256

// keep stores a header that the handler wants to see.
func (q *request) keep(name, value string) {
	for i, wanted := range q.h.Metadata {
		switch {
		case wanted != name || i >= len(q.metadata):
		case q.metadata[i] == "" && len(value) <= maxMetadata:
			q.metadata[i] = value
		case q.metadata[i] != "" && len(q.metadata[i])+1+len(value) <= maxMetadata:
			q.metadata[i] += "," + value
		}
	}
}

func (q *request) fail(reason string) {
	if q.malformed == "" {
		q.malformed = reason
	}
}

// finish checks what can only be seen at the end of the block.
func (q *request) finish() {
	if !q.trailers && !q.tooLarge && q.pseudo&pseudoRequired != pseudoRequired {
		q.fail("pseudo-header missing")
	}
}

// validName tells whether a header name is a token without upper case.
func validName(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if 'a' <= c && c <= 'z' || c == '-' || '0' <= c && c <= '9' {
			continue
		}
		if !strings.Contains("!#$%&'*+.^_`|~", string(rune(c))) {
			return false
		}
	}
	return name != ""
}

// isGRPC tells whether a content-type is gRPC with protobuf messages.
func isGRPC(contentType string) bool {
	const base = "application/grpc"
	if contentType == base {
		return true
	}
	if len(contentType) < len(base) || !strings.EqualFold(contentType[:len(base)], base) {
		return false
	}
	kind, _, _ := strings.Cut(contentType[len(base):], ";")
	kind = strings.TrimSpace(kind)
	return kind == "" || strings.EqualFold(kind, "+proto")
}

// parseTimeout reads grpc-timeout: at most eight digits and a unit.
func parseTimeout(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	var unit time.Duration
	switch s[len(s)-1] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	var n time.Duration
	for _, c := range []byte(s[:len(s)-1]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + time.Duration(c-'0')
	}
	const longest = 1<<63 - 1
	if n > longest/unit {
		return longest, true
	}
	return n * unit, true
}

// An encoder writes the header blocks of answers. They are always the same
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
	b = appendText(b, string(appendCode(code[:0], s.Code)))
	if s.Message == "" {
		return b
	}
	b = appendText(append(b, 0), "grpc-message")
	var text [3 * 64]byte
	encoded := appendPercentEncoded(text[:0], s.Message)
	b = appendInt(b, 0, 7, uint64(len(encoded)))
	return append(b, encoded...)
}

// appendNew begins a literal field whose name is in the static table, or
// follows if that is 0, and puts it into the table unless there is none.
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
