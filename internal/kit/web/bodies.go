package web

import (
	"context"
	"io"
	"net/http"
	"runtime"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// A client can send many bodies at a time, slowly, and what a body becomes when it is decoded may
// have many times its size. So a server bounds both: the bytes of the bodies of all requests in
// flight, each of which is a holder of a pool, and how many large bodies are decoded at a time.
const (
	maxBodies = 16 << 20 // bytes, of a server that shares no pool
	// freeBody is how many bytes of a body do not count. With those of a request of ordinary size
	// nobody can keep others from being answered.
	freeBody = 4 << 10
	// grown is how many bytes a byte of a body counts: the slice that grows with it has spare room.
	grown = 2
)

// boundBodies hands on requests whose bodies count in a pool.
func boundBodies(pool *memory.Pool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			c := &countedBody{ReadCloser: r.Body}
			c.account.Pool = pool
			defer c.giveBack()
			r.Body = c
		}
		next.ServeHTTP(w, r)
	})
}

// A countedBody is a body that counts as long as its request is in flight.
type countedBody struct {
	io.ReadCloser
	account memory.Account
	size    int // bytes read
}

var errNoRoom = Refuse(http.StatusServiceUnavailable, "too many bytes of requests are in memory; try again later")

// Read implements io.Reader. It fails if there is no room for what it has read.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.size += n
	if total := grown * (c.size - freeBody); total > 0 {
		if c.account.Counted() == 0 {
			c.account.Pool.Join()
		}
		granted := c.account.Grants(total)
		c.account.Set(total)
		if !granted {
			return 0, errNoRoom
		}
	}
	return n, err
}

func (c *countedBody) giveBack() {
	if c.account.Counted() > 0 {
		c.account.Set(0)
		c.account.Pool.Leave()
	}
}

// decoding has a place for each large body that is decoded at a time: half of the CPUs are left to others.
var decoding = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

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
