package unary

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// add appends what has arrived of the request's message. It fails as soon as
// it is clear that the message is too large or not the only one.
func (st *stream) add(p []byte, limit int) *Status {
	st.body = append(st.body, p...)
	if len(st.body) < messagePrefix {
		return nil
	}
	n := binary.BigEndian.Uint32(st.body[1:])
	if uint64(n) > uint64(limit) {
		return tooLarge(int64(n), limit)
	}
	if len(st.body) > messagePrefix+int(n) {
		return &Status{Internal, "received multiple request messages for a unary call"}
	}
	return nil
}

// decode makes the call's message of what has arrived. room is how many more
// bytes a decompressed message may have.
func (st *stream) decode(limit, room int) *Status {
	if len(st.body) == 0 {
		return &Status{Internal, "received no request message for a unary call"}
	}
	if len(st.body) < messagePrefix || len(st.body)-messagePrefix < int(binary.BigEndian.Uint32(st.body[1:])) {
		return &Status{Internal, "the request ended within its message"}
	}
	message := st.body[messagePrefix:]
	switch compressed := st.body[0]; {
	case compressed == 0:
		st.call.Message = message
		return nil
	case compressed != 1:
		return &Status{Internal, fmt.Sprintf("received unexpected payload format %d", compressed)}
	case !st.gzip:
		return &Status{Internal, "compressed flag set with identity or empty encoding"}
	}
	var err error
	room += maxKeptBuffer // see streams.reserve
	if st.plain, err = gunzip(st.plain[:0], message, min(limit, room)); err != nil {
		switch {
		case errors.Is(err, errTooLarge) && room < limit:
			return errMemory
		case errors.Is(err, errTooLarge):
			return tooLarge(int64(limit)+1, limit)
		}
		return &Status{Internal, "failed to decompress the received message: " + err.Error()}
	}
	st.call.Message = st.plain
	return nil
}

// keepAnswer makes the message that waits of the reply: in its memory, unless it has much
// more than the message needs.
func (st *stream) keepAnswer() {
	reply := st.call.Reply
	size := messagePrefix + len(reply)
	if cap(reply) < size || cap(reply) > size+size/8 {
		st.answer = append(appendMessagePrefix(make([]byte, 0, size), len(reply)), reply...)
		return
	}
	st.call.Reply = nil
	st.answer = reply[:size]
	copy(st.answer[messagePrefix:], reply)
	appendMessagePrefix(st.answer[:0], len(reply))
}

func tooLarge(n int64, limit int) *Status {
	return &Status{ResourceExhausted, fmt.Sprintf("received message larger than max (%d vs. %d)", n, limit)}
}

var errTooLarge = errors.New("too large")

// A gunzipper is pooled: a decompressor is 40 KiB.
type gunzipper struct {
	src bytes.Reader
	zr  gzip.Reader
}

var gunzippers = sync.Pool{New: func() any { return new(gunzipper) }}

// gunzip appends the decompressed message to b, of at most limit bytes.
func gunzip(b, message []byte, limit int) ([]byte, error) {
	g := gunzippers.Get().(*gunzipper)
	defer gunzippers.Put(g)
	g.src.Reset(message)
	if err := g.zr.Reset(&g.src); err != nil {
		return b, err
	}
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := g.zr.Read(b[len(b):min(cap(b), limit+1)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return b, errTooLarge
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}
