package unary

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// methodTranslated is the method that translated requests call.
const methodTranslated = "/test.Translated/Call"

// translator returns the address of a proxy to the server at addr that makes of each
// request a gRPC call of methodTranslated with an empty message. The rest of what clients
// send, it passes on as it is.
func translator(t *testing.T, addr string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
			go func() { _ = translate(server, client); _ = server.Close() }()
		}
	}()
	return ln.Addr().String()
}

// translate copies the frames of a client until one of the two is gone.
func translate(server io.Writer, client io.Reader) error {
	if _, err := io.CopyN(server, client, int64(len(http2.ClientPreface))); err != nil {
		return err
	}
	header, decoder := make([]byte, 9), hpack.NewDecoder(4096, nil)
	for {
		if _, err := io.ReadFull(client, header); err != nil {
			return err
		}
		payload := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
		if _, err := io.ReadFull(client, payload); err != nil {
			return err
		}
		kind, flags, id := http2.FrameType(header[3]), http2.Flags(header[4]), binary.BigEndian.Uint32(header[5:])
		frame := append(header[:9:9], payload...)
		if kind == http2.FrameHeaders && flags&^http2.FlagHeadersEndStream == http2.FlagHeadersEndHeaders {
			if _, err := decoder.DecodeFull(payload); err == nil {
				frame = grpcRequest(id, flags.Has(http2.FlagHeadersEndStream))
			}
		}
		if _, err := server.Write(frame); err != nil {
			return err
		}
	}
}

// grpcRequest returns the frames of a call, with its message if the client says no more.
func grpcRequest(id uint32, whole bool) []byte {
	var block, frames bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0) // the table is the client's
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", methodTranslated}, {":authority", "test"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer takes all
	}
	framer := http2.NewFramer(&frames, nil)
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
	if whole {
		_ = framer.WriteData(id, true, make([]byte, 5))
	}
	return frames.Bytes()
}
