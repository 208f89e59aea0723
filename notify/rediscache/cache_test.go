package rediscache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/notify/pgstore"
	"github.com/headgate-rls/headgate/test/testenv"
)

// broker is a fake of Kafka that confirms every message, or none: what is tested here is who gets
// units.
type broker struct{ err error }

func (b *broker) Publish(_ context.Context, messages []notify.Message) []error {
	errs := make([]error, len(messages))
	for i := range errs {
		errs[i] = b.err
	}
	return errs
}

// newCache returns a cache in front of a database of its own. Nothing is done behind its answers.
func newCache(t *testing.T, server *testenv.RedisServer) (*Cache, *pgstore.Store) {
	t.Helper()
	c, store, _ := newCacheWith(t, server, new(broker), slog.DiscardHandler)
	return c, store
}

// newCacheWith also returns what runs a statement in the database.
func newCacheWith(t *testing.T, server *testenv.RedisServer, to *broker,
	log slog.Handler) (*Cache, *pgstore.Store, func(sql string) string) {
	t.Helper()
	databases := testenv.SharedDatabase(t, testenv.Postgres)
	database := databases.CreateDatabase("cache")
	store, err := pgstore.Open(pgstore.Config{Database: sqldb.Config{URL: database, PoolMin: 1, PoolMax: 10},
		Publisher: to})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := server.Options()
	o.MaxRetries = -1
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	c := New(Config{Client: client, Store: store, Timeout: 2 * time.Second, MaxTTL: time.Hour, SyncDelay: time.Hour,
		Log: slog.New(log)})
	t.Cleanup(c.grows.Wait)
	at, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return c, store, func(sql string) string {
		return strings.TrimSpace(databases.ExecOn(strings.TrimPrefix(at.Path, "/"), sql))
	}
}

func (c *Cache) mustConfigure(t *testing.T, limit int64) {
	t.Helper()
	if _, err := c.Configure(t.Context(), notify.Config{UserID: "u", RateLimit: limit, Minutes: 60}); err != nil {
		t.Fatal(err)
	}
}

func (c *Cache) mustSend(t *testing.T) notify.Accepted {
	t.Helper()
	a, err := c.Send(t.Context(), notify.Message{ID: "id", UserID: "u", Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// nextUnit returns the number of the first unit that the database has not given out.
func nextUnit(t *testing.T, s *pgstore.Store) int64 {
	t.Helper()
	b, err := s.Reserve(t.Context(), "u", func(int64) int64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	return b.From
}

// TestABlockIsFetchedOncePerBlock: the database is asked once for a block, and not for each send,
// however high the limit is.
func TestABlockIsFetchedOncePerBlock(t *testing.T) {
	server := testenv.StartRedis(t)
	for _, limit := range []int64{10_000, 1_000_000, notify.MaxLimit} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			c, store := newCache(t, server)
			c.mustConfigure(t, limit)
			block := blockOf(limit)
			const sends = 100
			for range sends {
				c.mustSend(t)
			}
			c.grow("u") // as a send does that saw few units left just before the block came
			c.grows.Wait()
			if got := nextUnit(t, store); got != block {
				t.Errorf("after %d sends the database has given out %d units, want a block of %d", sends, got, block)
			}
			for range block - sends {
				c.mustSend(t)
			}
			c.grows.Wait()
			if got := nextUnit(t, store); got != 2*block {
				t.Errorf("after %d sends the database has given out %d units, want two blocks of %d", block, got, block)
			}
		})
	}
}

// TestUnitsOnTheirWayAreWaitedFor: another gateway has taken the last units from the row, and not moved them to the
// hash yet. A send waits for them; if they do not come it is refused, and the next one does not wait.
func TestUnitsOnTheirWayAreWaitedFor(t *testing.T) {
	c, store := newCache(t, testenv.StartRedis(t))
	send := func() error {
		_, err := c.Send(t.Context(), notify.Message{ID: "id", UserID: "u", Text: "x"})
		return err
	}
	for _, left := range []int64{4, 0} { // in the hash there are so many, or there is no hash
		for _, comes := range []bool{true, false} {
			c.mustConfigure(t, left+2)
			for range left - 1 {
				c.mustSend(t)
			}
			c.grows.Wait()
			b, err := store.Reserve(t.Context(), "u", blockOf)
			if err != nil || b.From != left || b.To != left+2 {
				t.Fatalf("%+v, %v, want the last units", b, err)
			}
			if left > 0 {
				c.mustSend(t) // which asks for more behind the answer
			}
			if comes {
				time.AfterFunc(20*time.Millisecond, func() { _, _ = c.putBlock(context.Background(), "u", b) })
			}
			if err := send(); (err == nil) != comes || err != nil && !errors.As(err, new(*notify.LimitedError)) {
				t.Errorf("after %d sends, while units are on their way (%v): %v", left, comes, err)
			}
			began := time.Now()
			if err := send(); (err == nil) != comes || !comes && time.Since(began) > maxTransit {
				t.Errorf("after %d sends, once they have come (%v): %v after %v", left, comes, err, time.Since(began))
			}
		}
	}
}

// TestSendsThatMissTogetherGetEachUnitOnce: the hash is made once, and nobody's count is lost.
func TestSendsThatMissTogetherGetEachUnitOnce(t *testing.T) {
	c, _ := newCache(t, testenv.StartRedis(t))
	const limit = 40
	c.mustConfigure(t, limit)
	var mu sync.Mutex
	rest := map[int64]int{}
	var wait sync.WaitGroup
	for range limit + 24 {
		wait.Go(func() {
			a, err := c.Send(t.Context(), notify.Message{ID: "id", UserID: "u", Text: "x"})
			var full *notify.LimitedError
			if err != nil && !errors.As(err, &full) {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				rest[a.Remaining]++
			}
		})
	}
	wait.Wait()
	for n := range int64(limit) {
		if rest[n] != 1 {
			t.Errorf("%d sends were told that %d remain, want one", rest[n], n)
		}
	}
}

// TestARedisThatComesBackGivesNothingTwice: what the database has given out meanwhile is counted,
// and what is left of the block in the hash is not given by anybody else.
func TestARedisThatComesBackGivesNothingTwice(t *testing.T) {
	server := testenv.StartRedis(t)
	c, store := newCache(t, server)
	c.mustConfigure(t, 160) // blocks of 10
	if a := c.mustSend(t); a.Remaining != 159 {
		t.Errorf("%d remain of 160 after a send", a.Remaining)
	}
	c.down()
	for range 5 {
		c.mustSend(t)
	}
	if got := nextUnit(t, store); got != 15 {
		t.Errorf("the database has given out %d units, want a block of 10 and 5", got)
	}
	c.answered()
	total := int64(6)
	for {
		_, err := c.Send(t.Context(), notify.Message{ID: "id", UserID: "u", Text: "x"})
		var full *notify.LimitedError
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		total++
	}
	if total != 160 {
		t.Errorf("%d messages were accepted of 160", total)
	}
}

// TestARedisThatForgetsCostsFewBlocks: it throws away what it was told, as it does without memory to
// spare. The database decides, and the user has not lost the whole window by it.
func TestARedisThatForgetsCostsFewBlocks(t *testing.T) {
	server := testenv.StartRedis(t)
	c, store := newCache(t, server)
	c.mustConfigure(t, 160) // blocks of 10
	c.take = redis.NewScript("return {'miss', '0', '0', '0', '0', 0}")
	if a := c.mustSend(t); a.Remaining != 159-maxMisses*10 {
		t.Errorf("%d of 160 remain after a send", a.Remaining)
	}
	if got := nextUnit(t, store); got != maxMisses*10+1 || c.up() {
		t.Errorf("the database has given out %d units; Redis counts as up: %v", got, c.up())
	}
}

// TestAChangeWithoutRedisRemovesTheHashLater: the change itself succeeds.
func TestAChangeWithoutRedisRemovesTheHashLater(t *testing.T) {
	server := testenv.StartRedis(t)
	var log bytes.Buffer
	c, _, _ := newCacheWith(t, server, new(broker), slog.NewTextHandler(&log, nil))
	c.mustConfigure(t, 160)
	c.mustSend(t)
	c.grows.Wait()
	server.Pause()
	c.mustConfigure(t, 5)
	if !strings.Contains(log.String(), downText) || !strings.Contains(log.String(), "path=config") {
		t.Errorf("the log is %q", log.String())
	}
	c.behind(true)
	if _, n := c.pending.size(); n != 1 {
		t.Errorf("%d removals wait while Redis does not answer", n)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	c.delay = 10 * time.Millisecond
	running.Go(func() { c.Run(ctx) })
	server.Resume()
	testenv.Eventually(t, 10*time.Second, "remove the hash", func() string {
		_, wait := c.pending.size()
		if n := c.client.Exists(t.Context(), keyPrefix+"u").Val(); n != 0 || wait != 0 {
			return fmt.Sprintf("there are %d hashes, and %d removals wait", n, wait)
		}
		return ""
	})
	if a := c.mustSend(t); a.Limit != 5 || a.Remaining != 4 {
		t.Errorf("a send after the change: %+v", a)
	}
}

// TestTheEndWritesWhatWaits: the counts of Redis are in the database when Run has returned.
func TestTheEndWritesWhatWaits(t *testing.T) {
	c, _, query := newCacheWith(t, testenv.StartRedis(t), new(broker), slog.DiscardHandler)
	c.mustConfigure(t, 160)
	for range 3 {
		c.mustSend(t)
	}
	const counted = "SELECT current_count FROM rate_limit_store"
	wait, _ := c.pending.size()
	if n := query(counted); n != "0" || wait != 1 {
		t.Errorf("%s are counted before the delay is over, and %d users wait", n, wait)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	c.Run(ended)
	wait, _ = c.pending.size()
	if n := query(counted); n != "3" || wait != 0 {
		t.Errorf("%s are counted at the end, want 3, and %d users wait", n, wait)
	}
}

// TestAMessageThatIsNotDeliveredStaysCounted: its unit is lost, and a figure says so.
func TestAMessageThatIsNotDeliveredStaysCounted(t *testing.T) {
	kafka := &broker{err: &notify.UnavailableError{Part: notify.Broker, Err: errors.New("no broker")}}
	c, _, _ := newCacheWith(t, testenv.StartRedis(t), kafka, slog.DiscardHandler)
	c.mustConfigure(t, 160)
	var away *notify.UnavailableError
	if _, err := c.Send(t.Context(), notify.Message{ID: "id", UserID: "u", Text: "x"}); !errors.As(err, &away) ||
		away.Part != notify.Broker {
		t.Errorf("without a broker a send is answered with %v", err)
	}
	kafka.err = nil
	if a := c.mustSend(t); a.Remaining != 158 || c.lost.Value() != 1 {
		t.Errorf("%d of 160 remain after a lost unit and a send; %d are lost", a.Remaining, c.lost.Value())
	}
}

// TestWithoutRedisAndDatabaseNothingIsAccepted: and the error names the database.
func TestWithoutRedisAndDatabaseNothingIsAccepted(t *testing.T) {
	server := testenv.StartRedis(t)
	c, store := newCache(t, server)
	c.mustConfigure(t, 160)
	server.Kill()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	var away *notify.UnavailableError
	if _, err := c.Send(t.Context(), notify.Message{ID: "id", UserID: "u", Text: "x"}); !errors.As(err, &away) ||
		away.Part != notify.Store {
		t.Errorf("a send is answered with %v", err)
	}
}

// TestAHashThatIsNewerThanTheRowCostsFewUnits: after a failover, the clock of the new primary may be before
// the beginning of the window, or the primary may lack the last change of the user.
func TestAHashThatIsNewerThanTheRowCostsFewUnits(t *testing.T) {
	for field, ahead := range map[string]int64{"windowStart": 30_000_000, "version": 1} {
		t.Run(field, func(t *testing.T) {
			server := testenv.StartRedis(t)
			c, _, sql := newCacheWith(t, server, new(broker), slog.DiscardHandler)
			c.mustConfigure(t, 160) // blocks of 10
			c.mustSend(t)
			c.grows.Wait()
			if field == "windowStart" {
				// A window that begins in 30 s is one that began before the clock has stepped back by 30 s.
				sql("UPDATE rate_limit_store SET last_refresh_time = last_refresh_time + interval '30 seconds'")
			}
			if err := c.client.HIncrBy(t.Context(), keyPrefix+"u", field, ahead).Err(); err != nil {
				t.Fatal(err)
			}
			total := int64(1)
			for {
				_, err := c.Send(t.Context(), notify.Message{ID: "id", UserID: "u", Text: "x"})
				c.grows.Wait()
				if errors.As(err, new(*notify.LimitedError)) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				total++
			}
			if total < 130 || total > 160 || !c.up() {
				t.Errorf("%d messages were accepted of 160, want all but three blocks at most; Redis counts as up: %v",
					total, c.up())
			}
		})
	}
}

// Redis is asked again although the clock was a year ahead when it failed.
func TestAClockThatStepsBackDoesNotKeepRedisAway(t *testing.T) {
	c := new(Cache)
	c.down()
	if c.mayAsk() {
		t.Error("Redis is asked at once after it failed")
	}
	c.downUntil.Add(int64(365 * 24 * time.Hour))
	if !c.mayAsk() {
		t.Error("Redis is not asked for a year")
	}
	if c.mayAsk() {
		t.Error("two sends find out at a time whether Redis answers")
	}
}
