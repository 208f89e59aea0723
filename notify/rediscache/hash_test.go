package rediscache

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/notify/pgstore"
	"github.com/headgate-rls/headgate/test/testenv"
)

// hashesOf returns the hashes of a server, and its client.
func hashesOf(t *testing.T, server *testenv.RedisServer, maxTTL time.Duration) (*hashes, *redis.Client) {
	t.Helper()
	c := server.Client()
	h := newHashes(c, maxTTL, 5*time.Second)
	return &h, c
}

// blockFrom is a block of units of a limit of 100 in a window of a minute that has just begun.
func blockFrom(from, to, startUs, version int64) pgstore.Block {
	return pgstore.Block{From: from, To: to, RateLimit: 100, StartUs: startUs, Version: version, Rest: time.Minute,
		At: time.Now()}
}

func (h *hashes) mustPut(t *testing.T, b pgstore.Block, want bool) {
	t.Helper()
	if put, err := h.putBlock(t.Context(), "u", b); put != want || err != nil {
		t.Errorf("the block %d to %d of version %d: put %v, %v, want %v", b.From, b.To, b.Version, put, err, want)
	}
}

func (h *hashes) mustTake(t *testing.T, status status, count int64) taken {
	t.Helper()
	got, err := h.takeUnit(t.Context(), "u")
	if err != nil || got.status != status || got.count != count {
		t.Errorf("took %+v, %v, want %s with the count %d", got, err, status, count)
	}
	return got
}

// TestABlockIsHandedOutUnitByUnit: what is left of a block is neither lost nor given twice when
// the next one comes, in whatever order blocks come.
func TestABlockIsHandedOutUnitByUnit(t *testing.T) {
	h, c := hashesOf(t, testenv.StartRedis(t), time.Hour)
	h.mustTake(t, miss, 0)
	if n := c.DBSize(t.Context()).Val(); n != 0 {
		t.Error("a miss writes a hash")
	}
	h.mustPut(t, blockFrom(90, 94, 1000, 1), true)
	h.mustTake(t, ok, 91)
	h.mustTake(t, ok, 92)
	h.mustTake(t, low, 93)
	h.mustPut(t, blockFrom(97, 100, 1000, 1), true) // others took 94 to 96
	h.mustTake(t, ok, 97)
	h.mustPut(t, blockFrom(95, 96, 1000, 1), true) // a block that comes late
	for count := int64(97); count <= 99; count++ {
		h.mustTake(t, ok, count)
	}
	got := h.mustTake(t, ok, 100)
	if got.limit != 100 || got.version != 1 || got.startUs != 1000 {
		t.Errorf("took %+v", got)
	}
	h.mustTake(t, limited, 100)
}

// TestAUsedUpBlockIsNotAFullWindow: the database has more units.
func TestAUsedUpBlockIsNotAFullWindow(t *testing.T) {
	h, _ := hashesOf(t, testenv.StartRedis(t), time.Hour)
	h.mustPut(t, blockFrom(0, 1, 1000, 1), true)
	h.mustTake(t, low, 1)
	h.mustTake(t, exhausted, 1)
}

// TestAnOlderBlockNeverReplacesANewerHash: neither one of an older configuration nor one of an
// earlier window.
func TestAnOlderBlockNeverReplacesANewerHash(t *testing.T) {
	for _, c := range []struct {
		name                  string
		oldStart, oldVersion  int64
		youngStart, youngVers int64
	}{
		{"configuration", 3000, 1, 2000, 2},
		{"window", 1000, 2, 2000, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := hashesOf(t, testenv.StartRedis(t), time.Hour)
			old, young := blockFrom(0, 50, c.oldStart, c.oldVersion), blockFrom(10, 20, c.youngStart, c.youngVers)
			h.mustPut(t, old, true)
			h.mustTake(t, ok, 1)
			h.mustPut(t, young, true)
			h.mustTake(t, ok, 11) // what was left of the old block is lost
			h.mustPut(t, old, false)
			if got := h.mustTake(t, ok, 12); got.startUs != c.youngStart || got.version != c.youngVers {
				t.Errorf("took %+v", got)
			}
		})
	}
}

// TestAHashIsRemovedOnlyIfItIsNotNewer: the removal after a change may come late.
func TestAHashIsRemovedOnlyIfItIsNotNewer(t *testing.T) {
	h, c := hashesOf(t, testenv.StartRedis(t), time.Hour)
	h.mustPut(t, blockFrom(0, 50, 1000, 7), true)
	for _, step := range []struct{ version, hashes int64 }{{6, 1}, {7, 0}, {8, 0}} {
		if err := h.dropOld(t.Context(), "u", step.version); err != nil {
			t.Fatal(err)
		}
		if n := c.Exists(t.Context(), keyPrefix+"u").Val(); n != step.hashes {
			t.Errorf("after the removal of version %d there are %d hashes, want %d", step.version, n, step.hashes)
		}
	}
}

// TestAHashExpiresWithItsWindow: with the rest of the window when it is put, or earlier if hashes
// may not stay as long; and a block whose window is over is not put.
func TestAHashExpiresWithItsWindow(t *testing.T) {
	server := testenv.StartRedis(t)
	for _, step := range []struct{ rest, age, maxTTL, want time.Duration }{
		{time.Minute, 20 * time.Second, time.Hour, 40 * time.Second},
		{24 * time.Hour, 0, time.Hour, time.Hour},
		{1500 * time.Millisecond, 0, time.Hour, 1500 * time.Millisecond},
	} {
		h, c := hashesOf(t, server, step.maxTTL)
		b := blockFrom(0, 50, 1000, 1)
		b.Rest, b.At = step.rest, time.Now().Add(-step.age)
		before := time.Now()
		h.mustPut(t, b, true)
		got := h.mustTake(t, ok, 1)
		if slack := time.Since(before) + 2*time.Millisecond; got.rest > step.want || got.rest < step.want-slack {
			t.Errorf("%v of a window are left for %v: the hash expires in %v, want %v within %v", step.rest, step.age, got.rest,
				step.want, slack)
		}
		c.FlushAll(t.Context())
	}
	h, _ := hashesOf(t, server, time.Hour)
	b := blockFrom(0, 50, 1000, 1)
	b.At = time.Now().Add(-time.Minute)
	if put, err := h.putBlock(t.Context(), "u", b); put || !errors.Is(err, errNoTime) {
		t.Errorf("a block of a window that is over: put %v, %v", put, err)
	}
}

// TestAHashOfAnotherMasterIsNotBelieved: nor one that a master wrote before it was replaced, and
// has back from its successor when it is the master again. It lacks what the successor never got.
func TestAHashOfAnotherMasterIsNotBelieved(t *testing.T) {
	atOnce := testenv.WithArgs("--repl-diskless-sync-delay", "0")
	first, second := testenv.StartRedis(t, atOnce), testenv.StartRedis(t, atOnce)
	h1, c1 := hashesOf(t, first, time.Hour)
	h2, c2 := hashesOf(t, second, time.Hour)
	follow(t, c2, first)
	// The first replica that comes changes the master's id.
	testenv.Eventually(t, 20*time.Second, "the replica follows", func() string {
		if info := c2.Info(t.Context(), "replication").Val(); !strings.Contains(info, "master_link_status:up") {
			return info
		}
		return ""
	})
	h1.mustPut(t, blockFrom(0, 50, 1000, 1), true)
	h1.mustTake(t, ok, 1)
	testenv.Eventually(t, 20*time.Second, "the replica has the hash", func() string { return lacks(t, c2, "1") })
	lead(t, c2)
	h1.mustTake(t, ok, 2) // the successor does not hear of it
	h2.mustTake(t, miss, 0)
	follow(t, c1, second)
	testenv.Eventually(t, 20*time.Second, "the first master has the hash of its successor",
		func() string { return lacks(t, c1, "1") })
	lead(t, c1)
	h1.mustTake(t, miss, 0)
	h1.mustPut(t, blockFrom(50, 60, 1000, 1), true)
	h1.mustTake(t, ok, 51) // nothing of the block before
}

func lacks(t *testing.T, c *redis.Client, count string) string {
	if got := c.HGet(t.Context(), keyPrefix+"u", "currentCount").Val(); got != count {
		return "its count is " + strconv.Quote(got)
	}
	return ""
}

// follow makes a server the replica of another.
func follow(t *testing.T, c *redis.Client, master *testenv.RedisServer) {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Options().Addr)
	if err == nil {
		err = c.ReplicaOf(t.Context(), host, port).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lead makes a replica the master.
func lead(t *testing.T, c *redis.Client) {
	t.Helper()
	if err := c.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
}
