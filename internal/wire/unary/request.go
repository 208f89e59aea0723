package unary

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
)

// A request is what a request's header block says. A connection reuses one; the
// strings in it are not reused.
type request struct {
	limit    uint32 // of the header list, in bytes as HPACK counts them
	trailers bool   // the block ends a request
	handlers map[string]*handler

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

// A headerBlock is what is known of a header block without its fields.
type headerBlock struct {
	id              uint32
	end             bool // of the request
	dependsOnItself bool // says its priority, which is a fault
	frames          int  // CONTINUATION frames
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
	*q = request{limit: q.limit, handlers: q.handlers, metadata: q.metadata[:0], trailers: trailers, length: -1}
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
		if q.h = q.handlers[value]; q.h != nil {
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

// validName reports whether a header name is a token without upper case.
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

// isGRPC reports whether a content-type is gRPC with protobuf messages.
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
