package ratelimit

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate-rls/headgate/descriptors"
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

	fieldLimitRequests   = 1
	fieldLimitUnit       = 2
	fieldLimitName       = 3
	fieldLimitMultiplier = 4

	codeOK        = 1
	codeOverLimit = 2
)

// Bounds on what a client sends. Envoy stays far below them.
const (
	MaxMessageSize = 384 << 10 // bytes; five descriptors with a path of 60 KiB fit
	maxDescriptors = 256
	maxEntries     = 64
)

// Decode fills r from an encoded RateLimitRequest, reusing r's memory.
func (r *Request) Decode(message []byte) error {
	if len(message) > MaxMessageSize {
		return fmt.Errorf("request of %d bytes, at most %d", len(message), MaxMessageSize)
	}
	*r = Request{Descriptors: r.Descriptors[:0], size: len(message)}
	text := string(message) // all strings of r are parts of this one
	return fields(text, func(num protowire.Number, n uint64, s string) (err error) {
		switch num {
		case fieldRequestDomain:
			r.Domain, err = validText(s)
		case fieldRequestHits:
			r.Hits = uint32(n)
		case fieldRequestDescriptors:
			if len(r.Descriptors) == maxDescriptors {
				return fmt.Errorf("more than %d descriptors", maxDescriptors)
			}
			err = r.addDescriptor().decode(s)
		}
		return err
	}, requestTypes)
}

// addDescriptor appends a descriptor that keeps the memory of its entries.
func (r *Request) addDescriptor() *Descriptor {
	n := len(r.Descriptors)
	if n < cap(r.Descriptors) {
		r.Descriptors = r.Descriptors[:n+1]
	} else {
		r.Descriptors = append(r.Descriptors, Descriptor{})
	}
	d := &r.Descriptors[n]
	*d = Descriptor{Entries: d.Entries[:0]}
	return d
}

func (d *Descriptor) decode(text string) error {
	return fields(text, func(num protowire.Number, n uint64, s string) error {
		switch num {
		case fieldDescriptorEntries:
			return d.addEntry(s)
		case fieldDescriptorLimit:
			d.HasOverride = true
			return d.Override.decode(s)
		case fieldDescriptorHits:
			d.HasHits = true
			return fields(s, func(_ protowire.Number, n uint64, _ string) error {
				d.Hits = n
				return nil
			}, wrapperTypes)
		case fieldDescriptorNegative:
			d.Refund = n != 0
		}
		return nil
	}, descriptorTypes)
}

func (d *Descriptor) addEntry(text string) error {
	if len(d.Entries) == maxEntries {
		return fmt.Errorf("more than %d entries in a descriptor", maxEntries)
	}
	var e descriptors.Entry
	err := fields(text, func(num protowire.Number, _ uint64, s string) (err error) {
		switch num {
		case fieldEntryKey:
			e.Key, err = validText(s)
		case fieldEntryValue:
			e.Value, err = validText(s)
		}
		return err
	}, entryTypes)
	d.Entries = append(d.Entries, e)
	return err
}

func (o *Override) decode(text string) error {
	return fields(text, func(num protowire.Number, n uint64, s string) error {
		switch num {
		case fieldOverrideRequests:
			o.RequestsPerUnit = uint32(n)
		case fieldOverrideUnit:
			o.Unit = Unit(n)
		case fieldOverrideMultiplier:
			return fields(s, func(_ protowire.Number, n uint64, _ string) error {
				o.Multiplier = uint32(n)
				return nil
			}, wrapperTypes)
		}
		return nil
	}, overrideTypes)
}

// fieldTypes has the wire type of each field number that is known, at its
// index; fields that are unknown or of another type are skipped, as protobuf
// does.
type fieldTypes [5]protowire.Type

const unused = protowire.EndGroupType

var (
	requestTypes    = fieldTypes{unused, protowire.BytesType, protowire.BytesType, protowire.VarintType, unused}
	descriptorTypes = fieldTypes{unused, protowire.BytesType, protowire.BytesType, protowire.BytesType, protowire.VarintType}
	entryTypes      = fieldTypes{unused, protowire.BytesType, protowire.BytesType, unused, unused}
	overrideTypes   = fieldTypes{unused, protowire.VarintType, protowire.VarintType, protowire.BytesType, unused}
	wrapperTypes    = fieldTypes{unused, protowire.VarintType, unused, unused, unused}
)

var errTruncated = errors.New("malformed protobuf message")

// fields calls f for each field of an encoded message that types knows.
func fields(text string, f func(num protowire.Number, n uint64, s string) error, types fieldTypes) error {
	for len(text) > 0 {
		tag, size := varint(text)
		if size <= 0 {
			return errTruncated
		}
		text = text[size:]
		num, typ := protowire.DecodeTag(tag)
		if num < protowire.MinValidNumber || tag>>3 > uint64(protowire.MaxValidNumber) {
			return errTruncated
		}
		var n uint64
		var s string
		switch typ {
		case protowire.VarintType:
			n, size = varint(text)
		case protowire.BytesType:
			var length uint64
			if length, size = varint(text); size > 0 {
				if length > uint64(len(text)-size) {
					return errTruncated
				}
				s = text[size : size+int(length)]
				size += int(length)
			}
		default:
			size = protowire.ConsumeFieldValue(num, typ, []byte(text))
		}
		if size < 0 || size == 0 {
			return errTruncated
		}
		text = text[size:]
		if int(num) < len(types) && types[num] == typ {
			if err := f(num, n, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// varint decodes a base-128 number and returns its size, or -1.
func varint(s string) (n uint64, size int) {
	for i := 0; i < len(s) && i < 10; i++ {
		b := s[i]
		if i == 9 && b > 1 {
			return 0, -1
		}
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return n, i + 1
		}
	}
	return 0, -1
}

func validText(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", errors.New("a string is not valid UTF-8")
	}
	return s, nil
}

// AppendTo appends r as an encoded RateLimitResponse to b.
func (r *Response) AppendTo(b []byte) []byte {
	code := uint64(codeOK)
	if r.OverLimit {
		code = codeOverLimit
	}
	b = appendVarintField(b, fieldResponseCode, code)
	for i := range r.Statuses {
		b = protowire.AppendTag(b, fieldResponseStatuses, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(r.Statuses[i].size()))
		b = r.Statuses[i].appendTo(b)
	}
	for i := range r.Headers {
		b = appendHeader(b, fieldResponseHeaders, &r.Headers[i])
	}
	for i := range r.RequestHeaders {
		b = appendHeader(b, fieldRequestHeaders, &r.RequestHeaders[i])
	}
	b = appendStringField(b, fieldResponseBody, r.Body)
	if len(r.metadata) > 0 {
		size := 0
		for _, part := range r.metadata {
			size += len(part)
		}
		b = protowire.AppendTag(b, fieldResponseMetadata, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
		for _, part := range r.metadata { // maps merge when their encodings are joined
			b = append(b, part...)
		}
	}
	return b
}

func (s *Status) code() uint64 {
	if s.OverLimit {
		return codeOverLimit
	}
	return codeOK
}

func (s *Status) size() int {
	n := 2 // code
	if s.limit != nil {
		n += 1 + protowire.SizeBytes(len(s.limit.current))
	}
	if s.Remaining != 0 {
		n += 1 + protowire.SizeVarint(uint64(s.Remaining))
	}
	if s.limit != nil {
		n += 1 + protowire.SizeBytes(durationSize(s.Reset))
	}
	return n
}

func (s *Status) appendTo(b []byte) []byte {
	b = appendVarintField(b, fieldStatusCode, s.code())
	if s.limit != nil {
		b = appendBytesField(b, fieldStatusLimit, s.limit.current)
	}
	b = appendVarintField(b, fieldStatusRemaining, uint64(s.Remaining))
	if s.limit != nil {
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
