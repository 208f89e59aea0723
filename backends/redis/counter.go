package redis

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/limit"
)

// A counter is a key of a slice.
type counter struct {
	from, to int // in the text
	key      string
	hash     uint64
	total    int64         // what the slice adds to it
	need     time.Duration // for which it must live
	life     int64         // ms to live, if it is made
	known    bool          // to live long enough
	trip     *trip         // on which it is asked
	slot     int           // on a Cluster
	op       *limit.Op     // of a window: one of its ops
	start    limit.Instant // of the window; 0 if there is none

	count int64 // before the op that is decided next
	state state
	err   error
	back  int64 // what is to be undone, below zero

	incr, undo, left, end *redis.IntCmd
	make                  *redis.StatusCmd
	get                   *redis.StringCmd
}

// A state says what is known of a counter, and of a request by the last of those of its counters.
type state uint8

const (
	counted state = iota
	odd           // the script has to decide; if there is an error, nothing was added
	lost          // it is unknown whether anything was added
)

// newCounter makes the commands about a counter, which can be sent again and again: they point to its fields.
func newCounter() *counter {
	k, ctx := &counter{}, context.Background()
	k.incr = redis.NewIntCmd(ctx, "incrby", &k.key, &k.total)
	k.undo = redis.NewIntCmd(ctx, "incrby", &k.key, &k.back)
	k.left = redis.NewIntCmd(ctx, "pttl", &k.key)
	k.make = redis.NewStatusCmd(ctx, "set", &k.key, "0", "px", &k.life, "nx")
	k.end = redis.NewIntCmd(ctx, "pexpire", &k.key, &k.life)
	k.get = redis.NewStringCmd(ctx, "get", &k.key)
	return k
}

// before returns the number under the key before the slice: 0 if there was no key, and below zero if what was asked
// is no number.
func (k *counter) before() (int64, error) {
	if k.total > 0 {
		sum, err := k.incr.Result()
		return sum - k.total, err
	}
	text, err := k.get.Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if n, wrong := strconv.ParseInt(text, 10, 64); err != nil || wrong == nil {
		return n, err
	}
	return -1, nil
}

// gone reports whether a key that was known has vanished, so that the new one has no expiry.
func (k *counter) gone() bool { return k.known && k.total > 0 && k.err == nil && k.count == 0 }

// decide decides an op as step of envoy.lua does. Its window lasts for rest.
func (k *counter) decide(op *limit.Op, rest time.Duration, out *limit.Outcome) {
	capacity, want := op.Limit.Capacity(), max(op.Cost, 1)
	left := max(capacity-k.count, 0)
	if out.Admitted = want <= left; !out.Admitted && op.Cost > 0 {
		out.Taken = left
	}
	k.count += op.Cost
	out.Remaining, out.Reset = max(capacity-k.count, 0), rest
	switch {
	case want > capacity:
		out.Retry = limit.Never
	case want > out.Remaining:
		out.Retry = rest
	}
}
