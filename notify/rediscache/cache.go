package rediscache

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/notify/pgstore"
)

// Config is what New needs.
type Config struct {
	Client    redis.UniversalClient // which sends nothing twice by itself
	Store     *pgstore.Store
	Timeout   time.Duration // of a call to Redis
	MaxTTL    time.Duration // of a hash
	SyncDelay time.Duration // after which the database follows
	Log       *slog.Logger
}

// A Cache decides in Redis, and in the database where Redis does not answer. Run must be
// called for the database to follow.
type Cache struct {
	hashes
	store *pgstore.Store
	log   *slog.Logger
	often background.LogLimit
	delay time.Duration

	reserving singleflight.Group
	growing   sync.Map // users whose block is growing
	grows     sync.WaitGroup
	downUntil atomic.Int64
	probing   atomic.Bool
	pending   pending

	byRedis, fallbacks, lost metrics.Counter
}

// New returns a cache.
func New(c Config) *Cache {
	return &Cache{
		hashes: newHashes(c.Client, c.MaxTTL, c.Timeout), store: c.Store, log: c.Log,
		often: background.LogLimit{PerSecond: 5}, delay: c.SyncDelay,
		pending: newPending(),
	}
}

// blockOf is how many units of a limit a hash gets at once: what a user may lose with Redis. take.lua
// knows it, too.
func blockOf(limit int64) int64 { return min(max(limit/16, 2), 1000) }

const (
	// attempts bounds how often a send finds a block that others have used up meanwhile. A window
	// has fewer blocks, or they are large.
	attempts = 50
	// maxMisses bounds how often a send finds no hash. Each time costs a block.
	maxMisses = 3
)

var (
	errUsedUp  = errors.New("every block was used up by others")
	errForgets = errors.New("it does not keep what it was told: is it short of memory?")
)

// Send decides about a message in Redis, and delivers it after it was counted.
func (c *Cache) Send(ctx context.Context, m notify.Message) (notify.Accepted, error) {
	if !c.mayAsk() {
		return c.fallback(ctx, m, nil)
	}
	t, err := c.decide(ctx, m.UserID)
	var away *awayError
	switch {
	case errors.As(err, &away):
		c.down()
		return c.fallback(ctx, m, away.error)
	case err != nil:
		return notify.Accepted{}, err
	}
	c.byRedis.Add(1)
	if t.status == limited {
		return notify.Accepted{}, &notify.LimitedError{Limit: t.limit, Rest: t.rest}
	}
	c.pending.add(pgstore.Count{UserID: m.UserID, Count: t.count, StartUs: t.startUs, Version: t.version})
	if err := c.store.Deliver(ctx, m); err != nil {
		c.lost.Add(1) // it stays counted: to give it back would race with others
		return notify.Accepted{}, err
	}
	return notify.Accepted{Limit: t.limit, Remaining: t.limit - t.count}, nil
}

// An awayError: Redis does not answer as it should.
type awayError struct{ error }

// decide takes a unit from the user's hash, and sees to it that there is one.
func (c *Cache) decide(ctx context.Context, user string) (taken, error) {
	misses := 0
	for range attempts {
		// Not the client's context: its end says nothing about Redis.
		t, err := c.takeUnit(context.WithoutCancel(ctx), user)
		if err != nil {
			return t, &awayError{err}
		}
		c.answered()
		switch t.status {
		case low:
			c.grow(user)
			return t, nil
		case ok, limited:
			return t, nil
		case miss:
			if misses++; misses > maxMisses {
				return t, &awayError{errForgets}
			}
		}
		if err := c.reserve(ctx, user); err != nil {
			return t, err
		}
	}
	return taken{}, &awayError{errUsedUp}
}

// reserve moves a block of units from the user's row to the hash. Those who want the same
// at the same time share it.
func (c *Cache) reserve(ctx context.Context, user string) error {
	done := c.reserving.DoChan(user, func() (any, error) { return nil, c.moveBlock(ctx, user) })
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return &notify.UnavailableError{Part: notify.Store, Err: ctx.Err()}
	}
}

// moveWithin bounds how long a block takes from the database to Redis, for all callers that wait for it.
const moveWithin = 3 * time.Second

func (c *Cache) moveBlock(ctx context.Context, user string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveWithin)
	defer cancel()
	// Another block may have come since the caller saw that one is needed.
	if needed, err := c.needsBlock(ctx, user); err != nil {
		return &awayError{err}
	} else if !needed {
		return nil
	}
	b, err := c.store.Reserve(ctx, user, blockOf)
	if err != nil {
		return err
	}
	if b.From == b.To {
		if came, err := c.awaitBlock(ctx, user); came || err != nil {
			return err
		}
	}
	put, err := c.putBlock(ctx, user, b)
	over := errors.Is(err, errNoTime)
	if err != nil && !over {
		return &awayError{err}
	}
	// A change of the configuration that was saved between the two has removed a hash that
	// was not there yet.
	version, err := c.store.Version(ctx, user)
	switch {
	case err != nil:
		return err
	case version != b.Version:
		err = c.dropOld(ctx, user, b.Version)
	case !put && !over:
		// The hash is newer than the row: the database has failed over to one whose clock is behind, or
		// that lacks the last change. The hash would keep out every block that the row gives out.
		err = c.remove(ctx, user)
	}
	if err != nil {
		return &awayError{err}
	}
	return nil
}

// maxTransit bounds the longest pause of awaitBlock, which waits for twice as long.
const maxTransit = 80 * time.Millisecond

// awaitBlock waits for the last units of a window: another gateway may have taken them from the row and not put them
// into the hash yet. It reports whether they came. If not, the caller puts an empty block into the hash, which is full
// then, so that no send waits again in that window.
func (c *Cache) awaitBlock(ctx context.Context, user string) (came bool, err error) {
	for pause := 5 * time.Millisecond; pause <= maxTransit; pause *= 2 {
		if err := background.Sleep(ctx, pause); err != nil {
			return false, &awayError{err}
		}
		needed, err := c.needsBlock(ctx, user)
		if err != nil {
			return false, &awayError{err}
		}
		if !needed {
			return true, nil
		}
	}
	return false, nil
}

// grow gets the next block before this one is used up, so that no send waits for it.
func (c *Cache) grow(user string) {
	if _, busy := c.growing.LoadOrStore(user, struct{}{}); busy {
		return
	}
	c.grows.Go(func() {
		defer c.growing.Delete(user)
		// If it fails, the send that finds the block used up does it, and says so.
		_ = c.reserve(context.Background(), user)
	})
}

// downFor is how long Redis is not asked after it did not answer.
const downFor = 500 * time.Millisecond

// mayAsk reports whether to ask Redis: it answers, or it is time to try one send again. What is further ahead than
// downFor was set by a clock that has stepped back since.
func (c *Cache) mayAsk() bool {
	until := c.downUntil.Load()
	rest := time.Duration(until - time.Now().UnixNano())
	return until == 0 || (rest <= 0 || rest > downFor) && c.probing.CompareAndSwap(false, true)
}

func (c *Cache) up() bool { return c.downUntil.Load() == 0 }

func (c *Cache) down() {
	c.downUntil.Store(time.Now().Add(downFor).UnixNano())
	c.probing.Store(false)
}

func (c *Cache) answered() {
	if c.downUntil.Swap(0) != 0 {
		c.log.Info("Redis answers again")
	}
	c.probing.Store(false)
}

// downText is what operators look for.
const downText = "REDIS DOWN — Falling back to Postgres"

// fallback decides in the database, under the lock of the row.
func (c *Cache) fallback(ctx context.Context, m notify.Message, cause error) (notify.Accepted, error) {
	c.fallbacks.Add(1)
	if cause != nil {
		c.warn("send", m.UserID, cause)
	}
	return c.store.Send(ctx, m)
}

func (c *Cache) warn(path, user string, cause error) {
	if allowed, skipped := c.often.Allow(); allowed {
		c.log.Warn(downText, "path", path, "user", user, "error", cause, "skipped", skipped)
	}
}

// Configure saves what an administrator says about a user, and removes the user's hash. If
// Redis does not answer the hash is removed later.
func (c *Cache) Configure(ctx context.Context, config notify.Config) (start time.Time, err error) {
	if start, err = c.store.Configure(ctx, config); err != nil {
		return start, err
	}
	if err := c.remove(context.WithoutCancel(ctx), config.UserID); err != nil {
		c.warn("config", config.UserID, err)
		c.pending.addRemoval(config.UserID)
	}
	return start, nil
}
