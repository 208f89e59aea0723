package ratelimit

import (
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

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

// encodeMetadata encodes m as a google.protobuf.Struct. What cannot be a
// Struct (the rule loader lets none through) is left out.
func encodeMetadata(m map[string]any) []byte {
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

// appendTextMetadata appends an encoded google.protobuf.Struct with one field.
func appendTextMetadata(b []byte, key, value string) []byte {
	inner := protowire.SizeTag(3) + protowire.SizeBytes(len(value))
	entry := protowire.SizeTag(1) + protowire.SizeBytes(len(key)) + protowire.SizeTag(2) + protowire.SizeBytes(inner)
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(entry))
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), key)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(inner))
	return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), value)
}
