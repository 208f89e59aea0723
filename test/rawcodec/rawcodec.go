// Package rawcodec lets grpc-go send and receive encoded messages as they are.
package rawcodec

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// Codec takes a *[]byte for a message. It has the name of the protobuf codec, so that servers
// take what it sends for protobuf.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name implements [encoding.CodecV2].
func (Codec) Name() string { return "proto" }

// Marshal implements [encoding.CodecV2].
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal implements [encoding.CodecV2].
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
