package dynamodb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend keeps state in a table. Open makes one.
type Backend struct {
	conf   Config
	caps   backends.Caps
	client *client
	cache  *cache
	writer string // this process, 8 bytes

	writes                                        atomic.Int64
	calls, retries, conflicts, throttled, settled atomic.Int64
}

var (
	_ backends.Backend   = (*Backend)(nil)
	_ backends.Registrar = (*Backend)(nil)
	_ backends.Figured   = (*Backend)(nil)
	_ backends.Migrator  = (*Backend)(nil)
)

// errPanic is what a request fails with that nobody has answered.
var errPanic = fmt.Errorf("%w: the decision ended early", backends.ErrUnavailable)

// Open returns the backend of a Config that Parse made. It reads the files that the AWS SDK reads, and
// does not connect: a table that is away is noticed by the first call. Close must be called.
func Open(conf Config) (*Backend, error) {
	if conf.Now == nil {
		return nil, errors.New("Config.Now is missing")
	}
	conf.Log = cmp.Or(conf.Log, slog.New(slog.DiscardHandler))
	b := &Backend{conf: conf, caps: conf.Caps(), cache: newCache(conf.Remember), writer: rand.Text()[:8]}
	var err error
	if b.client, err = newClient(&b.conf, &b.calls); err != nil {
		return nil, err
	}
	return b, nil
}

// Caps returns what the backend promises.
func (b *Backend) Caps() backends.Caps { return b.caps }

// Close implements [backends.Backend].
func (b *Backend) Close() error {
	b.client.transport.CloseIdleConnections()
	return nil
}

// pingLife is how long a ping's item may stay.
const pingLife = time.Minute

// Ping implements [backends.Backend]. It writes to an item of its own.
func (b *Backend) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	name := primary{pingItems + b.writer, "-"}
	put := types.WriteRequest{PutRequest: &types.PutRequest{Item: attributes{
		attrKey: binaryValue(name.key), attrRow: binaryValue(name.row),
		attrTTL: ttl(limit.InstantOf(b.conf.Now().Add(pingLife))),
	}}}
	return standing(b.writeEach(ctx, []types.WriteRequest{put}))
}

// Forget implements [backends.Backend].
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	names := make([]primary, len(keys))
	for i, k := range keys {
		names[i] = counter(k)
	}
	return b.drop(ctx, names)
}

// drop deletes items.
func (b *Backend) drop(ctx context.Context, names []primary) error {
	var all []types.WriteRequest
	seen := map[primary]bool{}
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			all = append(all, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: n.attributes()}})
		}
	}
	return b.writeEach(ctx, all)
}

var errCapacity = errors.New("the table has no capacity left")

// writeEach puts and deletes items, each by itself. What is done twice by that is the same.
func (b *Backend) writeEach(ctx context.Context, all []types.WriteRequest) error {
	for some := range slices.Chunk(all, maxBatch) {
		inDoubt := false
		for try := 1; len(some) > 0; try++ {
			left, o, err := b.client.batch(ctx, some)
			if err == nil && len(left) > 0 {
				o, err = busy, errCapacity
			}
			inDoubt = inDoubt || o == lost || len(left) < len(some)
			some = left
			if err == nil {
				continue
			}
			if b.conf.last(o, try) || !pause(ctx, try) {
				return failed(err, inDoubt)
			}
			b.retries.Add(1)
		}
	}
	return nil
}
