package web

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"

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

// boundBytes hands on requests whose bodies and answers count in a pool.
func boundBytes(pool *memory.Pool, stats *Stats, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := &keeper{stats: stats, client: r.RemoteAddr, path: r.URL.Path}
		k.account.Pool = pool
		defer k.keep(0, 0)
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &countedBody{ReadCloser: r.Body, of: k}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), keeperKey{}, k)))
	})
}

// A keeper counts what the server keeps for a request as long as it is in flight.
type keeper struct {
	stats        *Stats
	client, path string

	mu           sync.Mutex
	account      memory.Account
	body, answer int // bytes that count
}

type keeperKey struct{}

// keep counts the bytes.
func (k *keeper) keep(body, answer int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(body, answer)
}

// set is keep; the caller holds the lock.
func (k *keeper) set(body, answer int) {
	before := k.account.Counted() > 0
	k.body, k.answer = body, answer
	if total := body + answer; total > 0 {
		if !before {
			k.account.Pool.Join()
		}
		k.account.Set(total)
	} else if before {
		k.account.Set(0)
		k.account.Pool.Leave()
	}
}

// grantsBody counts the bytes of a body, and reports whether there is room for them.
func (k *keeper) grantsBody(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	granted := k.account.Grants(n + k.answer)
	k.set(n, k.answer)
	return granted
}

// grantsAnswer counts the bytes of an answer, if there is room for them.
func (k *keeper) grantsAnswer(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n > k.answer && !k.account.Spares(k.body+n) {
		return false
	}
	k.set(k.body, n)
	return true
}

// A countedBody is a body that counts as long as its request is in flight.
type countedBody struct {
	io.ReadCloser
	of   *keeper
	size int // bytes read
}

var errNoRoom = Refuse(http.StatusServiceUnavailable, "too many bytes of requests are in memory; try again later")

// Read implements io.Reader. It fails if there is no room for what it has read.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.size += n
	if total := grown * (c.size - freeBody); total > 0 && !c.of.grantsBody(total) {
		c.of.refused("a body")
		return 0, errNoRoom
	}
	return n, err
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
