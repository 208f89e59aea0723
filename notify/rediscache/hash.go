package rediscache

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/notify/pgstore"
)

// keyPrefix begins the key of a user's hash, which ends with the user's id.
const keyPrefix = "RateLimiterCache:"

//go:embed take.lua
var takeText string

//go:embed put.lua
var putText string

//go:embed drop.lua
var dropText string

// hashes are the hashes of users in Redis.
type hashes struct {
	client           redis.UniversalClient
	take, put, drop  *redis.Script
	maxTTL, deadline time.Duration
}

func newHashes(client redis.UniversalClient, maxTTL, deadline time.Duration) hashes {
	return hashes{client, redis.NewScript(takeText), redis.NewScript(putText), redis.NewScript(dropText), maxTTL, deadline}
}

// A status is what there is in a hash.
type status string

const (
	ok        status = "ok"  // a unit was taken
	low       status = "low" // a unit was taken, and few are left of the block
	limited   status = "limited"
	exhausted status = "exhausted" // the block is used up, the limit is not
	miss      status = "miss"
)

// A taken is the answer of take.lua.
type taken struct {
	status           status
	limit, count     int64
	version, startUs int64
	rest             time.Duration
}

// takeUnit takes a unit. It is never repeated: after an error one may have been taken.
func (h *hashes) takeUnit(ctx context.Context, user string) (taken, error) {
	return h.askHash(ctx, user, 1)
}

// needsBlock reports whether a user's hash has few units left, or none, and the limit is not reached.
func (h *hashes) needsBlock(ctx context.Context, user string) (bool, error) {
	t, err := h.askHash(ctx, user, 0)
	return t.status != ok && t.status != limited, err
}

func (h *hashes) askHash(ctx context.Context, user string, units int) (t taken, err error) {
	reply, err := h.run(ctx, h.take, user, units).Slice()
	if err != nil {
		return t, err
	}
	if len(reply) != 6 {
		return t, fmt.Errorf("take.lua returns %d values", len(reply))
	}
	word, _ := reply[0].(string)
	t.status = status(word)
	for i, to := range []*int64{&t.limit, &t.count, &t.version, &t.startUs} {
		text, _ := reply[i+1].(string)
		n, wrong := strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, wrong)
		*to = n
	}
	left, _ := reply[5].(int64)
	t.rest = time.Duration(left) * time.Millisecond
	return t, err
}

// errNoTime: the window of a block is over.
var errNoTime = errors.New("the window is over")

// putBlock adds a block to the user's hash. It is never repeated: after an error the block
// may be there.
func (h *hashes) putBlock(ctx context.Context, user string, b pgstore.Block) (put bool, err error) {
	left := min(b.Rest-time.Since(b.At), h.maxTTL).Milliseconds()
	if left <= 0 {
		return false, errNoTime
	}
	answer, err := h.run(ctx, h.put, user, b.Version, b.StartUs, b.RateLimit, b.From, b.To, left).Text()
	return answer == "put", err
}

// dropOld removes the user's hash unless its configuration is newer than the version.
func (h *hashes) dropOld(ctx context.Context, user string, version int64) error {
	return h.run(ctx, h.drop, user, version).Err()
}

// remove removes the user's hash.
func (h *hashes) remove(ctx context.Context, user string) error {
	ctx, cancel := context.WithTimeout(ctx, h.deadline)
	defer cancel()
	return h.client.Del(ctx, keyPrefix+user).Err()
}

// removeAll removes the hashes of a few users, and returns those whose hash may be there still: a node of a Cluster may
// not answer, while the others do.
func (h *hashes) removeAll(ctx context.Context, users []string) (left []string) {
	failed := make([]bool, len(users))
	var all sync.WaitGroup
	for i, user := range users {
		all.Go(func() { failed[i] = h.remove(ctx, user) != nil })
	}
	all.Wait()
	for i, user := range users {
		if failed[i] {
			left = append(left, user)
		}
	}
	return left
}

// run runs a script within the deadline. It is sent again with its text only if the server says that it does not
// know it, and so has not run it.
func (h *hashes) run(ctx context.Context, s *redis.Script, user string, args ...any) *redis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, h.deadline)
	defer cancel()
	return s.Run(ctx, h.client, []string{keyPrefix + user}, args...)
}
