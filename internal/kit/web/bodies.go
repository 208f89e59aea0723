package web

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
)

// A client can send many bodies at a time, slowly, and what a body becomes when it is decoded may
// have many times its size. So a server bounds both: the bytes of the bodies of all requests in
// flight, and how many large bodies are decoded at a time.
const (
	maxBodies = 16 << 20 // bytes
	// freeBody is how many bytes of a body do not count. With those of a request of ordinary size
	// nobody can keep others from being answered.
	freeBody = 4 << 10
)

// bodies count the bytes of requests in flight.
type bodies struct {
	used     atomic.Int64 // bytes
	requests atomic.Int64 // of which some bytes count
}

// bound hands on requests whose bodies count.
func (b *bodies) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			c := &countedBody{ReadCloser: r.Body, of: b}
			defer c.giveBack()
			r.Body = c
		}
		next.ServeHTTP(w, r)
	})
}

// A countedBody is a body that counts as long as its request is in flight.
type countedBody struct {
	io.ReadCloser
	of      *bodies
	size    int64 // bytes read
	counted int64 // of which count
}

var errNoRoom = refuse(http.StatusServiceUnavailable, "too many bytes of requests are in memory; try again later")

// Read implements io.Reader. It fails if there is no room for what it has read.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.size += int64(n)
	if more := c.size - freeBody - c.counted; more > 0 && !c.take(more) {
		return 0, errNoRoom
	}
	return n, err
}

// take counts more bytes. While less than half of the bound is used, each request gets what it asks
// for; above that no more than a fair share of the other half, so that a few do not shut out others.
func (c *countedBody) take(more int64) bool {
	if c.counted == 0 {
		c.of.requests.Add(1)
	}
	c.counted += more
	return c.of.used.Add(more) <= maxBodies/2 || c.counted <= maxBodies/2/c.of.requests.Load()
}

func (c *countedBody) giveBack() {
	if c.counted > 0 {
		c.of.used.Add(-c.counted)
		c.of.requests.Add(-1)
	}
}

// decoding has a place for each large body that is decoded at a time.
var decoding = make(chan struct{}, runtime.GOMAXPROCS(0))

// InTurn calls decode, which decodes a body of so many bytes: at once if the body is small, else
// when it is its turn. The error is that of ctx, if it ends before.
func InTurn(ctx context.Context, size int, decode func()) error {
	if size > freeBody {
		select {
		case decoding <- struct{}{}:
			defer func() { <-decoding }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	decode()
	return nil
}
