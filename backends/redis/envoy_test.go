package redis

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// textKey is the key of a counter that envoyproxy/ratelimit has as well.
func textKey(text string) limit.Key {
	return limit.Key{Group: limit.TextGroup([]byte(text)), Limit: "1m"}
}

func fixed(tb testing.TB, most int64, window time.Duration, o limit.Overflow) *limit.Limit {
	tb.Helper()
	l, err := limit.New(limit.Spec{Algorithm: limit.FixedWindow, Max: most, Window: window, Overflow: o})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// takeAt takes from one limit.
func takeAt(tb testing.TB, b *Backend, at limit.Instant, k limit.Key, l *limit.Limit, cost int64) limit.Verdict {
	tb.Helper()
	return take(tb, b, limit.Request{At: at, Ops: []limit.Op{{Key: k, Limit: l, Cost: cost}}})[0]
}

// Keys, counts and lives are those of envoyproxy/ratelimit. test/compat compares them with those
// that it makes itself.
func TestEnvoyKeysAreThoseOfTheReference(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c, ctx := open(t, s.URL()+"?layout=envoy&cache_key_prefix=pre:&expiration_jitter=10"), s.Client(),
		context.Background()
	now := limit.InstantOf(time.Now())
	for _, window := range windowsOfEnvoy {
		seconds := int64(window / time.Second)
		k := textKey("d_a_b_" + window.String() + "_")
		key := "pre:d_a_b_" + window.String() + "_" + strconv.FormatInt(int64(now)/1e6/seconds*seconds, 10)
		for i, want := range []string{"3", "6", "9", "12"} { // what is refused is counted
			v := takeAt(t, b, now, k, fixed(t, 7, window, limit.Saturate), 3)
			if v.Err != nil || v.Admitted != (i < 2) {
				t.Errorf("%v, take %d: %+v", window, i+1, v)
			}
			if got := c.Get(ctx, key).Val(); got != want {
				t.Errorf("%q holds %q, want %s", key, got, want)
			}
			if ttl := c.TTL(ctx, key).Val(); ttl < window-time.Second || ttl > window+10*time.Second {
				t.Errorf("%q lives %v", key, ttl)
			}
		}
	}
	long := textKey(strings.Repeat("x", limit.MaxTextGroupLen))
	takeAt(t, b, now, long, fixed(t, 7, time.Hour, limit.Saturate), 3)
	if keys := c.Keys(ctx, "headgate:{h*").Val(); len(keys) != 1 || len(keys[0]) > 100 {
		t.Errorf("a key that is too long is %q, want a hash", keys)
	}
}

// The value of a key is the count, also if another program wrote it. A value that is not a
// count is not changed.
func TestEnvoyForeignValues(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c, ctx := open(t, s.URL()+"?layout=envoy"), s.Client(), context.Background()
	now := limit.InstantOf(time.Now().Truncate(time.Hour))
	l := fixed(t, 10, time.Hour, limit.Saturate)
	beside := textKey("d_beside_")
	for i, row := range []struct {
		value    string
		after    string // a cost of 3
		admitted bool
		corrupt  bool
	}{
		{value: "0", after: "3", admitted: true},
		{value: "7", after: "10", admitted: true},
		{value: "8", after: "11"},
		{value: "4294967296", after: "4294967299"},
		{value: "-5", after: "3", admitted: true}, // nothing is gone; as if never used
		{value: "4503599627370495", after: "4503599627370496"},
		{value: "4503599627370497", after: "4503599627370497"}, // as good as any more
		{value: "9223372036854775807", after: "9223372036854775807"},
		{value: "99999999999999999999", after: "99999999999999999999"},
		{value: "-9223372036854775808", after: "-9223372036854775808", corrupt: true},
		{value: "", after: "", corrupt: true},
		{value: "1.5", after: "1.5", corrupt: true},
		{value: "1e3", after: "1e3", corrupt: true},
		{value: " 1", after: " 1", corrupt: true},
		{value: "abc", after: "abc", corrupt: true},
		{value: strings.Repeat("9", 1000), after: strings.Repeat("9", 1000), corrupt: true},
		{value: string(make([]byte, 29)), after: string(make([]byte, 29)), corrupt: true},
	} {
		text := "d_foreign_" + strconv.Itoa(i) + "_"
		key := text + strconv.FormatInt(int64(now)/1e6, 10)
		c.Set(ctx, key, row.value, time.Hour)
		reqs := []limit.Request{
			{At: now, Ops: []limit.Op{{Key: textKey(text), Limit: l, Cost: 3}}},
			{At: now, Ops: []limit.Op{{Key: beside, Limit: fixed(t, 1000, time.Hour, limit.Refuse), Cost: 1}}},
		}
		out := make([]limit.Verdict, 2)
		b.Take(ctx, reqs, out)
		if out[1].Err != nil || !out[1].Admitted {
			t.Errorf("beside %.30q: %+v", row.value, out[1])
		}
		err := out[0].Err
		if row.corrupt != errors.Is(err, backends.ErrCorrupt) || row.corrupt != errors.Is(err, backends.ErrNotApplied) ||
			err == nil && out[0].Admitted != row.admitted {
			t.Errorf("%.30q: %+v", row.value, out[0])
		}
		if got := c.Get(ctx, key).Val(); got != row.after {
			t.Errorf("%.30q became %.30q, want %.30q", row.value, got, row.after)
		}
	}
	for name, set := range map[string]func(key string){
		"list": func(key string) { c.RPush(ctx, key, 1) }, "set": func(key string) { c.SAdd(ctx, key, 1) },
		"hash":   func(key string) { c.HSet(ctx, key, 1, 1) },
		"stream": func(key string) { c.Do(ctx, "XADD", key, "*", "a", "1") },
	} {
		text := "d_" + name + "_"
		key := text + strconv.FormatInt(int64(now)/1e6, 10)
		set(key)
		before := c.Dump(ctx, key).Val()
		if v := takeAt(t, b, now, textKey(text), l, 1); before == "" || !errors.Is(v.Err, backends.ErrCorrupt) {
			t.Errorf("a %s: %+v", name, v)
		}
		if c.Dump(ctx, key).Val() != before {
			t.Errorf("a %s was changed", name)
		}
	}
}

// Both layouts in one Redis do not meet.
func TestEnvoyBesideOtherLayouts(t *testing.T) {
	s := testenv.StartRedis(t)
	now := limit.InstantOf(time.Now().Truncate(time.Hour))
	l, k := fixed(t, 2, time.Hour, limit.Refuse), limit.Key{Group: "1:d", Limit: "1h"}
	for _, layout := range []string{"list", "envoy", "envoy&prefix=other:"} {
		b := open(t, s.URL()+"?layout="+layout)
		for i := range 3 {
			if v := takeAt(t, b, now, k, l, 1); v.Err != nil || v.Admitted != (i < 2) {
				t.Errorf("%s, take %d: %+v", layout, i+1, v)
			}
		}
		if err := b.Ping(context.Background()); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
	}
}

// A replica whose clock is wrong logs that once.
func TestEnvoyLayoutWarnsOfAWrongClock(t *testing.T) {
	s := testenv.StartRedis(t)
	for by, warns := range map[time.Duration]int{0: 0, time.Hour: 1, -time.Hour: 1} {
		var log bytes.Buffer
		conf := mustParse(t, s.URL()+"?layout=envoy&timeout=10s")
		conf.Now = time.Now
		b, err := Open(context.Background(), conf, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		k := textKey("d_" + by.String() + "_")
		if err := b.Ping(context.Background()); err != nil {
			t.Error(err)
		}
		for range 3 {
			if v := takeAt(t, b, limit.InstantOf(time.Now().Add(by)), k, fixed(t, 10, time.Minute, limit.Saturate),
				1); v.Err != nil {
				t.Error(v.Err)
			}
		}
		b.Close()
		if n := strings.Count(log.String(), "the clock here and that of Redis differ"); n != warns {
			t.Errorf("%v: %d warnings, want %d: %s", by, n, warns, log.String())
		}
	}
}

// TestEnvoyLayoutCountsAsPlainArithmetic compares random takes with the plain arithmetic of
// counters, also where limits change and hits beyond them are given back, which the
// conformance suite leaves out.
func TestEnvoyLayoutCountsAsPlainArithmetic(t *testing.T) {
	s := testenv.StartRedis(t)
	b, r := open(t, s.URL()+"?layout=envoy"), random.Rand(t, 7)
	for round := range random.Times(50, 2000) {
		now, count := limit.InstantOf(time.Now().Truncate(time.Hour)), int64(0)
		k := textKey("d_" + strconv.Itoa(round) + "_")
		for range 20 {
			most, cost, saturates := int64(r.IntN(12)), int64(r.IntN(14))-4, r.IntN(2) == 0
			o := limit.Refuse
			if saturates {
				o = limit.Saturate
			}
			before, left := count, max(most-count, 0)
			admitted := cost < 0 || max(cost, 1) <= left
			taken := int64(0)
			switch {
			case admitted:
				count = max(count+cost, 0)
			case saturates && cost > 0:
				taken = min(left, cost)
				count += cost
			}
			v := takeAt(t, b, now, k, fixed(t, most, time.Hour, o), cost)
			if v.Err != nil || v.Admitted != admitted || v.Outcomes[0].Taken != taken ||
				v.Outcomes[0].Remaining != max(most-count, 0) {
				t.Fatalf("cost %d of %d with %v, %d gone before: %+v, want admitted %v, %d taken, %d gone", cost, most, o, before,
					v, admitted, taken, count)
			}
		}
	}
}

// On a Cluster the descriptors of a request are in several slots. What a refused request took
// is given back, to the counters that it was taken from.
func TestEnvoyClusterGivesBackRefusedUnits(t *testing.T) {
	s := testenv.StartRedisCluster(t)
	u := "redis+cluster://" + strings.Join(s.Addrs, ",") + "?layout=envoy&timeout=10s"
	backendtest.Run(t, likeFirst(t, u, random.Times(5, 60)))
	b, ctx := open(t, u), context.Background()
	c := s.Client()
	now := limit.InstantOf(time.Now().Truncate(time.Hour))
	start := strconv.FormatInt(int64(now)/1e6, 10)
	unique := strconv.FormatUint(rand.Uint64(), 36)
	roomy, full := fixed(t, 1000, time.Hour, limit.Saturate), fixed(t, 2, time.Hour, limit.Saturate)
	for _, each := range []bool{false, true} {
		var ops []limit.Op
		want := map[string]int64{}
		for i := range 8 {
			text := "d_" + unique + strconv.Itoa(i) + strconv.FormatBool(each) + "_"
			ops = append(ops, limit.Op{Key: textKey(text), Limit: roomy, Cost: 3, Each: each})
			want[text+start] = 3
			if each {
				want[text+start] = 9
			}
		}
		scarce := "d_" + unique + "full" + strconv.FormatBool(each) + "_"
		want[scarce+start] = 9
		out := make([]limit.Verdict, 1)
		b.Take(ctx, []limit.Request{{At: now, Ops: ops}}, out) // all of it is admitted
		if out[0].Err != nil || !out[0].Admitted {
			t.Fatalf("%+v", out[0])
		}
		ops = append(ops, limit.Op{Key: textKey(scarce), Limit: full, Cost: 3, Each: each})
		for i := range 3 {
			if i == 2 && each {
				break
			}
			b.Take(ctx, []limit.Request{{At: now, Ops: ops}}, out)
			if out[0].Err != nil || out[0].Admitted {
				t.Fatalf("%+v", out[0])
			}
		}
		if each {
			want[scarce+start] = 6
		}
		waitRefunds(t, b)
		for key, n := range want {
			if got := c.Get(ctx, key).Val(); got != strconv.FormatInt(n, 10) {
				t.Errorf("each %v: %q holds %q, want %d", each, key, got, n)
			}
		}
	}
}
