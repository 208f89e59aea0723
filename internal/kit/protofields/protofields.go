package protofields

import "google.golang.org/protobuf/encoding/protowire"

// A Reader goes through the fields of an encoded message:
//
//	r := protofields.Of(message)
//	for r.Next() {
//		switch {
//		case r.IsBytes(1):
//			name = r.Value
//		case r.IsNumber(2):
//			count = r.Number
//		}
//	}
//	if r.Malformed { … }
//
// Fields of an unknown number or another type are passed over, as protobuf does.
type Reader[T string | []byte] struct {
	// Malformed says that Next returned false because the message is malformed.
	Malformed bool
	// Number is the value of the present field if it is a varint, else 0.
	Number uint64
	// Value is the value of the present field if it is a string, bytes or a
	// message, else empty. It is a part of the message that is read.
	Value T

	rest T
	num  protowire.Number
	typ  protowire.Type
}

// Of returns a reader of an encoded message.
func Of[T string | []byte](message T) Reader[T] { return Reader[T]{rest: message} }

// Next goes to the next field, and reports whether there is one.
func (r *Reader[T]) Next() bool {
	rest := r.rest
	if len(rest) == 0 {
		return false
	}
	tag, n := varint(rest)
	if n < 0 || tag>>3 < uint64(protowire.MinValidNumber) || tag>>3 > uint64(protowire.MaxValidNumber) {
		return r.fail()
	}
	rest = rest[n:]
	r.num, r.typ = protowire.Number(tag>>3), protowire.Type(tag&7)
	switch r.typ {
	case protowire.VarintType:
		r.Number, n = varint(rest)
		r.Value = rest[:0]
	case protowire.BytesType:
		length, size := varint(rest)
		if size < 0 || length > uint64(len(rest)-size) {
			return r.fail()
		}
		n = size + int(length)
		r.Number, r.Value = 0, rest[size:n]
	default:
		n = protowire.ConsumeFieldValue(r.num, r.typ, []byte(rest))
		r.Number, r.Value = 0, rest[:0]
	}
	if n < 0 {
		return r.fail()
	}
	r.rest = rest[n:]
	return true
}

func (r *Reader[T]) fail() bool {
	var none T
	r.Malformed, r.rest, r.num = true, none, 0
	return false
}

// IsBytes reports whether the present field has this number and is a string,
// bytes or a message.
func (r *Reader[T]) IsBytes(num protowire.Number) bool {
	return r.num == num && r.typ == protowire.BytesType
}

// IsNumber reports whether the present field has this number and is a varint.
func (r *Reader[T]) IsNumber(num protowire.Number) bool {
	return r.num == num && r.typ == protowire.VarintType
}

// Bytes returns the last field with a number that is a string, bytes or a message; ok: the message is not malformed.
func Bytes[T string | []byte](message T, num protowire.Number) (value T, ok bool) {
	r := Of(message)
	for r.Next() {
		if r.IsBytes(num) {
			value = r.Value
		}
	}
	return value, !r.Malformed
}

// Entry returns the fields 1 and 2 as [Bytes] does: the key and the value of an entry of a map.
func Entry[T string | []byte](message T) (key, value T, ok bool) {
	r := Of(message)
	for r.Next() {
		switch {
		case r.IsBytes(1):
			key = r.Value
		case r.IsBytes(2):
			value = r.Value
		}
	}
	return key, value, !r.Malformed
}

// varint decodes a base-128 number and returns its size, -1 if it is malformed.
func varint[T string | []byte](s T) (n uint64, size int) {
	if len(s) > 0 && s[0] < 0x80 {
		return uint64(s[0]), 1
	}
	return longVarint(s)
}

func longVarint[T string | []byte](s T) (n uint64, size int) {
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
