package messages

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/protofields"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// The messages are decoded and encoded by hand: one allocation for all strings
// of a request, none for a response, against about twenty and ten with
// generated code. A fuzz test holds both to what google.golang.org/protobuf
// does.

// Field numbers of envoy/service/ratelimit/v3/rls.proto and
// envoy/extensions/common/ratelimit/v3/ratelimit.proto.
const (
	fieldRequestDomain      = 1
	fieldRequestDescriptors = 2
	fieldRequestHits        = 3

	fieldDescriptorEntries  = 1
	fieldDescriptorLimit    = 2
	fieldDescriptorHits     = 3
	fieldDescriptorNegative = 4

	fieldEntryKey   = 1
	fieldEntryValue = 2

	fieldOverrideRequests   = 1
	fieldOverrideUnit       = 2
	fieldOverrideMultiplier = 3

	fieldResponseCode     = 1
	fieldResponseStatuses = 2
	fieldResponseHeaders  = 3
	fieldRequestHeaders   = 4
	fieldResponseBody     = 5
	fieldResponseMetadata = 6

	fieldStatusCode      = 1
	fieldStatusLimit     = 2
	fieldStatusRemaining = 3
	fieldStatusReset     = 4

	codeOK        = 1
	codeOverLimit = 2
)

// Bounds on what a client sends. Envoy stays far below them.
const (
	MaxMessageSize = 384 << 10 // bytes; five descriptors with a path of 60 KiB fit
	MaxDescriptors = 1024
	maxEntries     = 256
)

// Decode fills r from an encoded RateLimitRequest, reusing r's memory.
func Decode(r *ratelimit.Request, message []byte) error {
	if len(message) > MaxMessageSize {
		return fmt.Errorf("the request has %d bytes, at most %d are allowed", len(message), MaxMessageSize)
	}
	*r = ratelimit.Request{Descriptors: r.Descriptors[:0], Size: len(message)}
	f := protofields.Of(string(message)) // all strings of r are parts of this one
	for f.Next() {
		var err error
		switch {
		case f.IsBytes(fieldRequestDomain):
			r.Domain, err = validText(f.Value)
		case f.IsNumber(fieldRequestHits):
			r.Hits = uint32(f.Number)
		case f.IsBytes(fieldRequestDescriptors):
			if len(r.Descriptors) == MaxDescriptors {
				return fmt.Errorf("the request has more than %d descriptors", MaxDescriptors)
			}
			err = decodeDescriptor(addDescriptor(r), f.Value)
		}
		if err != nil {
			return err
		}
	}
	return complete(&f)
}

// complete returns an error if the message was malformed.
func complete(f *protofields.Reader[string]) error {
	if f.Malformed {
		return errMalformed
	}
	return nil
}

var errMalformed = errors.New("the protobuf message is malformed")

// addDescriptor appends a descriptor that keeps the memory of its entries.
func addDescriptor(r *ratelimit.Request) *ratelimit.Descriptor {
	n := len(r.Descriptors)
	if n < cap(r.Descriptors) {
		r.Descriptors = r.Descriptors[:n+1]
	} else {
		r.Descriptors = append(r.Descriptors, ratelimit.Descriptor{})
	}
	d := &r.Descriptors[n]
	*d = ratelimit.Descriptor{Entries: d.Entries[:0]}
	return d
}

func decodeDescriptor(d *ratelimit.Descriptor, message string) error {
	f := protofields.Of(message)
	for f.Next() {
		var err error
		switch {
		case f.IsBytes(fieldDescriptorEntries):
			err = addEntry(d, f.Value)
		case f.IsBytes(fieldDescriptorLimit):
			d.HasOverride = true
			err = decodeOverride(&d.Override, f.Value)
		case f.IsBytes(fieldDescriptorHits):
			d.HasHits = true
			err = decodeWrapper(f.Value, &d.Hits)
		case f.IsNumber(fieldDescriptorNegative):
			d.Refund = f.Number != 0
		}
		if err != nil {
			return err
		}
	}
	return complete(&f)
}

// decodeWrapper reads a google.protobuf.UInt32Value or UInt64Value into n, which
// keeps its value if the message has none.
func decodeWrapper(message string, n *uint64) error {
	f := protofields.Of(message)
	for f.Next() {
		if f.IsNumber(1) {
			*n = f.Number
		}
	}
	return complete(&f)
}

func addEntry(d *ratelimit.Descriptor, message string) error {
	if len(d.Entries) == maxEntries {
		return fmt.Errorf("a descriptor has more than %d entries", maxEntries)
	}
	var e descriptors.Entry
	f := protofields.Of(message)
	for f.Next() {
		var err error
		switch {
		case f.IsBytes(fieldEntryKey):
			e.Key, err = validText(f.Value)
		case f.IsBytes(fieldEntryValue):
			e.Value = asText(f.Value)
		}
		if err != nil {
			return err
		}
	}
	d.Entries = append(d.Entries, e)
	return complete(&f)
}

func decodeOverride(o *ratelimit.Override, message string) error {
	f := protofields.Of(message)
	for f.Next() {
		switch {
		case f.IsNumber(fieldOverrideRequests):
			o.RequestsPerUnit = uint32(f.Number)
		case f.IsNumber(fieldOverrideUnit):
			o.Unit = ratelimit.Unit(f.Number)
		case f.IsBytes(fieldOverrideMultiplier):
			n := uint64(o.Multiplier)
			if err := decodeWrapper(f.Value, &n); err != nil {
				return err
			}
			o.Multiplier = uint32(n)
		}
	}
	return complete(&f)
}

// MayReturnLease reports whether an encoded request may bring leases back. Such requests go
// first, because they make room for those after them. Their deadline matters little: a
// release that the backend cannot do in time is retried.
func MayReturnLease(message []byte) bool { return bytes.Contains(message, opKey) }

var opKey = []byte(ratelimit.OpKey)

// MayEndRequests reports whether an encoded request may end requests in flight, by a lease or
// by negative hits. It may be true for a message that ends none. It may be false
// only if the message's encoder did not write the shortest form.
func MayEndRequests(message []byte) bool {
	return MayReturnLease(message) || bytes.Contains(message, negativeHits)
}

var negativeHits = []byte{fieldDescriptorNegative << 3, 1}

// Append appends r as an encoded RateLimitResponse to b.
func Append(r *ratelimit.Response, b []byte) []byte {
	code := uint64(codeOK)
	if r.OverLimit {
		code = codeOverLimit
	}
	b = appendVarintField(b, fieldResponseCode, code)
	for i := range r.Statuses {
		b = protowire.AppendTag(b, fieldResponseStatuses, protowire.BytesType)
		b = appendStatus(b, &r.Statuses[i])
	}
	for i := range r.Headers {
		b = appendHeader(b, fieldResponseHeaders, &r.Headers[i])
	}
	for i := range r.RequestHeaders {
		b = appendHeader(b, fieldRequestHeaders, &r.RequestHeaders[i])
	}
	b = appendStringField(b, fieldResponseBody, r.Body)
	if metadata := r.Metadata(); len(metadata) > 0 {
		size := 0
		for _, part := range metadata {
			size += len(part)
		}
		b = protowire.AppendTag(b, fieldResponseMetadata, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
		for _, part := range metadata { // maps merge when their encodings are joined
			b = append(b, part...)
		}
	}
	return b
}

// appendStatus appends a DescriptorStatus after its size.
func appendStatus(b []byte, s *ratelimit.Status) []byte {
	code, size := uint64(codeOK), 2 // that of the code
	if s.OverLimit {
		code = codeOverLimit
	}
	limit, counted := s.Limit()
	if counted {
		size += 1 + protowire.SizeBytes(len(limit)) + 1 + protowire.SizeBytes(durationSize(s.Reset))
	}
	if s.Remaining != 0 {
		size += 1 + protowire.SizeVarint(uint64(s.Remaining))
	}
	b = protowire.AppendVarint(b, uint64(size))
	b = appendVarintField(b, fieldStatusCode, code)
	if counted {
		b = appendBytesField(b, fieldStatusLimit, limit)
	}
	b = appendVarintField(b, fieldStatusRemaining, uint64(s.Remaining))
	if counted {
		b = protowire.AppendTag(b, fieldStatusReset, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(durationSize(s.Reset)))
		b = appendVarintField(b, 1, uint64(s.Reset))
	}
	return b
}

func durationSize(seconds int64) int {
	if seconds == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(seconds))
}

// appendHeader appends an envoy.config.core.v3.HeaderValue (key 1, value 2).
func appendHeader(b []byte, field protowire.Number, h *descriptors.Header) []byte {
	size := 0
	if h.Name != "" {
		size += 1 + protowire.SizeBytes(len(h.Name))
	}
	if h.Value != "" {
		size += 1 + protowire.SizeBytes(len(h.Value))
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = appendStringField(b, 1, h.Name)
	return appendStringField(b, 2, h.Value)
}

// validText returns s, which operators choose, unless it is not UTF-8.
func validText(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", errors.New("a string is not valid UTF-8")
	}
	return s, nil
}

// asText returns s with U+FFFD for bytes that are not UTF-8. Clients choose values, and Envoy
// sends their bytes as they are. If the call failed for them, Envoy would let the request pass.
func asText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// The append functions leave out zero values, as proto3 does.

func appendVarintField(b []byte, num protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), n)
}

func appendStringField(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendBytesField(b []byte, num protowire.Number, s []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// Encoder encodes what responses carry: see [ratelimit.Encoder].
type Encoder struct{}

// Struct encodes m as a google.protobuf.Struct. What cannot be a
// Struct (the rule loader lets none through) is left out.
func (Encoder) Struct(m map[string]any) []byte {
	st, err := structpb.NewStruct(m)
	if err != nil {
		return nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(st)
	if err != nil {
		return nil
	}
	return b
}

// AppendText appends an encoded google.protobuf.Struct with one field.
func (Encoder) AppendText(b []byte, key, value string) []byte {
	inner := protowire.SizeTag(3) + protowire.SizeBytes(len(value))
	entry := protowire.SizeTag(1) + protowire.SizeBytes(len(key)) + protowire.SizeTag(2) + protowire.SizeBytes(inner)
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(entry))
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), key)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(inner))
	return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), value)
}

// unitOf returns the unit and multiplier of a window, or zeros.
// Without multipliers only windows of one unit have one.
func unitOf(window time.Duration, multipliers bool) (ratelimit.Unit, uint32) {
	u, n := units.Of(window)
	if n > 1 && !multipliers {
		return 0, 0
	}
	return ratelimit.Unit(u.Number), uint32(n)
}

// Field numbers of RateLimitResponse.RateLimit.
const (
	fieldLimitRequests   = 1
	fieldLimitUnit       = 2
	fieldLimitName       = 3
	fieldLimitMultiplier = 4
	// fieldLimitWindow is a field of headgate: the window in microseconds, if no unit fits it. Envoy ignores it.
	fieldLimitWindow = 8081
)

// Limit encodes a RateLimit message. A window that no unit fits is
// sent as unit UNKNOWN: Envoy then makes a header with the number alone, where it
// would trust a wrong unit. headgate ask reads the window from a field of its own.
func (Encoder) Limit(name string, l *limit.Limit, multipliers bool) []byte {
	_, window := l.Quota()
	unit, multiplier := unitOf(window, multipliers)
	if l.Is(limit.Leased) { // it is the life of a lease
		unit, multiplier, window = 0, 0, 0
	}
	b := appendVarintField(nil, fieldLimitRequests, uint64(ratelimit.LimitOnWire(l)))
	b = appendVarintField(b, fieldLimitUnit, uint64(unit))
	b = appendStringField(b, fieldLimitName, name)
	if multiplier > 1 {
		b = appendBytesField(b, fieldLimitMultiplier, appendVarintField(nil, 1, uint64(multiplier)))
	}
	if unit == 0 {
		b = appendVarintField(b, fieldLimitWindow, uint64(window.Microseconds()))
	}
	return b
}

// Question encodes a request as the reference service's dynamic metadata have it.
func (e Encoder) Question(r *ratelimit.Request) []byte {
	list := make([]any, len(r.Descriptors))
	for i := range r.Descriptors {
		list[i] = describe(&r.Descriptors[i])
	}
	m := map[string]any{"domain": r.Domain, "descriptors": list}
	if r.Hits != 0 {
		m["hitsAddend"] = float64(r.Hits)
	}
	return e.Struct(m)
}

func describe(d *ratelimit.Descriptor) map[string]any {
	m := map[string]any{"entries": entryStrings(d.Entries)}
	if d.HasOverride {
		m["limit"] = map[string]any{
			"requestsPerUnit": float64(d.Override.RequestsPerUnit),
			"unit":            d.Override.Unit.String(),
		}
	}
	if d.HasHits {
		m["hitsAddend"] = float64(d.Hits)
	}
	return m
}

func entryStrings(entries []descriptors.Entry) []any {
	out := make([]any, len(entries))
	for i, e := range entries {
		out[i] = e.Key + "=" + e.Value
	}
	return out
}
