package redis

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// laterMarks put something under a key that a later version may have written: see script/unreadable.lua.
func laterMarks(t *testing.T, c *redis.Client) map[string]func(key string) {
	ctx := t.Context()
	return map[string]func(key string){
		"string":      func(key string) { c.Set(ctx, key, "\x80", 0) },
		"long string": func(key string) { c.Set(ctx, key, "\xff"+strings.Repeat("x", 27), 0) },
		"list":        func(key string) { c.RPush(ctx, key, "\x80 2", "5") },
		"sorted set":  func(key string) { c.ZAdd(ctx, key, redis.Z{Score: math.Inf(-1), Member: "\x80"}) },
		"long sorted set": func(key string) {
			c.ZAdd(ctx, key, redis.Z{Score: math.Inf(-1), Member: "\x80"})
			for i := range 9 {
				c.ZAdd(ctx, key, redis.Z{Score: float64(8 * (time.Now().UnixMilli() + 60_000)), Member: fmt.Sprint("l", i)})
			}
		},
	}
}

// TestLaterFormatsAreRecognised: what a later version has marked as its own fails the requests that need it as such,
// and no others, and is not changed.
func TestLaterFormatsAreRecognised(t *testing.T) {
	s := testenv.StartRedis(t)
	c := s.Client()
	for _, layout := range []string{"list", "zset", "envoy"} {
		b := open(t, s.URL()+"?layout="+layout)
		for _, a := range limit.AllAlgorithms() {
			l := limit.MustNew(limit.Spec{Algorithm: a, Max: 5, Window: time.Minute})
			if b.caps.Check(l) != nil {
				continue
			}
			ask := func(key string) limit.Request {
				op := limit.Op{Key: limit.Key{Group: layout + a.String(), Limit: key}, Limit: l, Cost: 1}
				if l.Is(limit.Leased) {
					op.Holder = key
				}
				return limit.Request{At: limit.InstantOf(time.Now()), Ops: []limit.Op{op}}
			}
			for what, spoil := range laterMarks(t, c) {
				bad, good := ask("bad"), ask("good "+what)
				name := b.ownKey(bad.Ops[0].Key)
				if layout == "envoy" {
					name = string(b.appendKey(nil, &bad.Ops[0], bad.At))
				}
				c.Del(t.Context(), name)
				spoil(name)
				before := c.Dump(t.Context(), name).Val()
				both := limit.Request{At: bad.At, Ops: []limit.Op{good.Ops[0], bad.Ops[0]}}
				out := take(t, b, good, bad, both, ask("other "+what))
				for _, i := range []int{1, 2} {
					if err := out[i].Err; !errors.Is(err, backends.ErrLater) || !errors.Is(err, backends.ErrNotApplied) ||
						!strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
						t.Errorf("%s, %v, %s: request %d: %v", layout, a, what, i, err)
					}
				}
				if out[0].Err != nil || !out[0].Admitted || out[3].Err != nil || !out[3].Admitted {
					t.Errorf("%s, %v, %s: neighbours got %+v and %+v", layout, a, what, out[0], out[3])
				}
				if c.Dump(t.Context(), name).Val() != before {
					t.Errorf("%s, %v, %s: it was changed", layout, a, what)
				}
			}
		}
	}
}

// TestCountedWindowsOfLaterVersions: a window that INCRBY counts, and that a later version takes over, is recognised.
func TestCountedWindowsOfLaterVersions(t *testing.T) {
	s := testenv.StartRedis(t)
	b, req := open(t, s.URL()), one(t, "k", 9, 1, time.Hour, limit.Refuse)
	name := b.ownKey(req.Ops[0].Key)
	for range 2 {
		if v := take(t, b, req)[0]; v.Err != nil || !v.Admitted {
			t.Fatalf("%+v", v)
		}
	}
	if b.counts.(*windows).counted.Load() == 0 {
		t.Fatal("INCRBY has counted nothing")
	}
	s.Client().Set(t.Context(), name, "\x80later", time.Hour)
	for range 3 {
		if v := take(t, b, req)[0]; !errors.Is(v.Err, backends.ErrLater) {
			t.Fatalf("%+v", v)
		}
	}
	if got := s.Client().Get(t.Context(), name).Val(); got != "\x80later" {
		t.Errorf("it became %q", got)
	}
}

// TestGarbageOpensNothing: what begins as a state does and goes on as it likes is an error, or counts as some state of
// its limit, which admits no more than the limit says.
func TestGarbageOpensNothing(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := open(t, s.URL()), s.Client()
	random := rand.New(rand.NewPCG(1, 2))
	const most = 5
	unread := 0
	for i := range 2000 {
		a := limit.Algorithms()[i%4]
		l := limit.MustNew(limit.Spec{Algorithm: a, Max: most, Window: time.Hour})
		req := limit.Request{Ops: []limit.Op{{Key: limit.Key{Group: fmt.Sprint("g", i)}, Limit: l, Cost: 1}}}
		name := b.ownKey(req.Ops[0].Key)
		if a == limit.SlidingLog {
			parts := make([]any, 2*(1+random.IntN(9)))
			for j := range parts {
				parts[j] = random.Uint64N(1 << (1 + random.IntN(63)))
			}
			c.RPush(t.Context(), name, parts...)
		} else {
			raw := make([]byte, 28)
			for j := range raw {
				raw[j] = byte(random.Uint32())
			}
			raw[0] = byte(a)
			if i%3 > 0 { // figures that a state may have
				raw[7] &= 0x0f
				raw[15], raw[14], raw[23], raw[22] = 0x41, raw[14]|0x80, 0x40, raw[22]|0x80
			}
			c.Set(t.Context(), name, raw, time.Hour)
		}
		admitted := 0
		for range 2 * most {
			v := take(t, b, req)[0]
			switch {
			case v.Err != nil && (!errors.Is(v.Err, backends.ErrCorrupt) || errors.Is(v.Err, backends.ErrLater)):
				t.Fatalf("%v: %v", a, v.Err)
			case v.Err != nil:
				unread++
			case v.Admitted:
				admitted++
			}
		}
		if admitted > most+1 { // a bucket gains one in twelve minutes
			t.Errorf("%v admits %d of %d", a, admitted, most)
		}
	}
	if unread == 0 || unread == 2*most*2000 {
		t.Errorf("%d of %d requests met what cannot be read", unread, 2*most*2000)
	}
}
